package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"flashgate/internal/ops"
)

const (
	clientTimeout = 30 * time.Second
	// maxAnswer bounds an answer, in bytes: a page of a hundred sales with all their items has about 15 MB.
	maxAnswer = 64 << 20
)

// Client calls the admin API. It is safe for concurrent use.
type Client struct {
	base  string
	token string
	http  *http.Client
}

// NewClient returns a client for the admin listener at base, such as http://127.0.0.1:9090. It asks for nothing yet.
func NewClient(base, token string) *Client {
	return &Client{
		base:  strings.TrimSuffix(base, "/"),
		token: token,
		http: &http.Client{
			Timeout: clientTimeout,
			// The API redirects nowhere; whoever does is not it, and must not see the token.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close ends the connections that are kept for the next call.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Refusal is an error that the server answered with.
type Refusal struct {
	Status  int
	Code    string // empty when the answer did not come from the API
	Message string
}

// Error implements error.
func (r *Refusal) Error() string {
	if r.Code == "" {
		return fmt.Sprintf("the server answers with status %d and no message of the admin API; is this the admin listener?", r.Status)
	}
	return fmt.Sprintf("%s (%d %s)", r.Message, r.Status, r.Code)
}

// Answer is what the server answered: the JSON as it came, and what it says.
type Answer[T any] struct {
	JSON  []byte
	Value T
}

// CreateSale sends the JSON of a sale as it is; the server checks it.
func (c *Client) CreateSale(ctx context.Context, body []byte) (Answer[CreatedView], error) {
	return call[CreatedView](ctx, c, http.MethodPost, "/admin/sales", body, "")
}

// Sale asks for a sale.
func (c *Client) Sale(ctx context.Context, id int64) (Answer[SaleView], error) {
	return call[SaleView](ctx, c, http.MethodGet, "/admin/sales/"+strconv.FormatInt(id, 10), nil, "")
}

// Sales asks for a page of sales: up to limit of them (0: as many as the server likes) behind cursor ("": from the start).
func (c *Client) Sales(ctx context.Context, limit int, cursor string) (Answer[SalesView], error) {
	return call[SalesView](ctx, c, http.MethodGet, "/admin/sales"+pageOf(limit, cursor).encode(), nil, "")
}

// Item asks for the numbers of an item.
func (c *Client) Item(ctx context.Context, id int64) (Answer[ItemView], error) {
	return call[ItemView](ctx, c, http.MethodGet, "/admin/items/"+strconv.FormatInt(id, 10), nil, "")
}

// Restock adds units to an item, once per key unless that is empty.
func (c *Client) Restock(ctx context.Context, id, units int64, key string) (Answer[RestockView], error) {
	body := []byte(`{"quantity":` + strconv.FormatInt(units, 10) + `}`)
	return call[RestockView](ctx, c, http.MethodPost, "/admin/items/"+strconv.FormatInt(id, 10)+"/restock", body, key)
}

// call sends one request. An answer that is an error becomes a *Refusal.
func call[T any](ctx context.Context, c *Client, method, path string, body []byte, key string) (Answer[T], error) {
	var answer Answer[T]
	status, data, err := c.send(ctx, method, path, body, key)
	if err != nil {
		return answer, err
	}
	if status < 200 || status > 299 {
		refusal := &Refusal{Status: status}
		var e ops.ErrorBody
		if json.Unmarshal(data, &e) == nil {
			refusal.Code, refusal.Message = e.Code, e.Message
			refusal.Message += hint(refusal)
		}
		return answer, refusal
	}
	// A newer server may say more than this client knows.
	if err := json.Unmarshal(data, &answer.Value); err != nil {
		return answer, fmt.Errorf("read the answer of the admin API: %w", err)
	}
	answer.JSON = data
	return answer, nil
}

// hint says what is probably wrong where a listener answers that it has none of the paths of this client, all of which a gateway's admin listener has.
func hint(r *Refusal) string {
	switch {
	case r.Status != http.StatusNotFound || r.Code != ops.CodeNotFound:
	case r.Message == "there is nothing under this path":
		return "; this looks like the public address of a gateway, and the admin API is at its admin listener (FLASHGATE_ADMIN_LISTEN, by default port 9090)"
	case r.Message == "there is nothing at this path":
		return "; this looks like the admin listener of a consumer, or of an older version, and the admin API is at that of a gateway"
	}
	return ""
}

func (c *Client) send(ctx context.Context, method, path string, body []byte, key string) (status int, data []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("call the admin API: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("call the admin API at %s: %w", c.base, cause(err))
	}
	defer func() { _ = response.Body.Close() }()
	data, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer of the admin API: %w", cause(err))
	}
	if len(data) > maxAnswer {
		return 0, nil, fmt.Errorf("read the answer of the admin API: it is larger than %d bytes", maxAnswer)
	}
	return response.StatusCode, data, nil
}

// cause drops the method and URL that net/http puts in front; the message names the server already.
func cause(err error) error {
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		return urlErr.Err
	}
	return err
}

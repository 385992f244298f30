package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"flashgate/internal/ops"
	"flashgate/internal/sale"
	"flashgate/internal/strictjson"
)

const (
	// MaxBody bounds the body of a request, in bytes. A sale of MaxItems items has about 300 KiB.
	MaxBody = 1 << 20
	// maxKey bounds an Idempotency-Key, in bytes, as the public API does.
	maxKey = 128
	// defaultPage and maxPage are the numbers of things in one page of a list.
	defaultPage = 20
	maxPage     = 100
)

// decode reads the body, one JSON object, into v. The error names the member.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	data, err := readBody(w, r)
	switch {
	case err != nil:
		return err
	case len(data) == 0:
		return badRequest("the body is empty; it must be a JSON object")
	}
	return unmarshal(data, v)
}

// decodeOptional is decode for a body that may be left out: then v stays as it is.
func decodeOptional(w http.ResponseWriter, r *http.Request, v any) error {
	data, err := readBody(w, r)
	if err != nil || len(data) == 0 {
		return err
	}
	return unmarshal(data, v)
}

// noBody sees that a request says nothing that would be ignored: no body, or an empty object.
func noBody(w http.ResponseWriter, r *http.Request) error { return decodeOptional(w, r, &struct{}{}) }

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &failure{status: http.StatusRequestEntityTooLarge, code: ops.CodeTooLarge, message: fmt.Sprintf("the body is larger than %d bytes", MaxBody)}
	case err != nil:
		return nil, badRequest("the body could not be read")
	}
	return data, nil
}

func unmarshal(data []byte, v any) error {
	if err := strictjson.Unmarshal(data, v); err != nil {
		return badRequest(describeJSON(err))
	}
	return nil
}

// describeJSON makes a sentence of what is wrong with a body.
func describeJSON(err error) string {
	var problem *strictjson.Error
	if errors.As(err, &problem) && problem.Field == "" {
		return "the body: " + problem.Problem
	}
	return err.Error()
}

// pathID reads the id in the path.
func pathID(r *http.Request) (int64, error) {
	id, err := sale.ParseID(r.PathValue("id"))
	if err != nil {
		return 0, badRequest("id: " + err.Error())
	}
	return id, nil
}

// pathOrder reads the order id in the path.
func pathOrder(r *http.Request) (sale.OrderID, error) {
	id, err := sale.ParseOrderID(r.PathValue("id"))
	if err != nil {
		return sale.OrderID{}, badRequest("id: " + err.Error())
	}
	return id, nil
}

// checkQuery sees that the parameters of a request are among those that its route knows, each of them once.
func checkQuery(r *http.Request, known []string) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return badRequest("the query cannot be read: " + err.Error())
	}
	for name, all := range values {
		switch {
		case !slices.Contains(known, name):
			return badRequest(fmt.Sprintf("%.40q: is not a parameter of this path", name))
		case len(all) > 1:
			return badRequest(name + ": comes twice")
		}
	}
	return nil
}

// parameter reads a parameter of a request whose query has been checked.
func parameter(r *http.Request, name string) (text string, given bool) {
	values := r.URL.Query()
	return values.Get(name), values.Has(name)
}

// idempotencyKey returns the Idempotency-Key of a request, or "".
func idempotencyKey(r *http.Request) (string, error) {
	lines := r.Header.Values("Idempotency-Key")
	if len(lines) == 0 {
		return "", nil
	}
	key := lines[0]
	if len(lines) > 1 || len(key) < 1 || len(key) > maxKey || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", badRequest(fmt.Sprintf("Idempotency-Key: must be one header of 1 to %d visible ASCII characters", maxKey))
	}
	return key, nil
}

// page reads the parameters that every list has: how many things are wanted, and behind which one; an empty cursor is the start.
func page(r *http.Request) (limit int, cursor string, err error) {
	limit = defaultPage
	if text, given := parameter(r, "limit"); given {
		n, err := sale.ParseID(text)
		if err != nil || n > maxPage {
			return 0, "", badRequest(fmt.Sprintf("limit: must be an integer from 1 to %d", maxPage))
		}
		limit = int(n)
	}
	cursor, given := parameter(r, "cursor")
	if given && cursor == "" {
		return 0, "", badCursor()
	}
	return limit, cursor, nil
}

// idCursor reads a cursor that is the id of the last thing on the page before; 0 for none.
func idCursor(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	id, err := sale.ParseID(cursor)
	if err != nil {
		return 0, badCursor()
	}
	return id, nil
}

func badCursor() *failure { return badRequest("cursor: is not one that an answer gave") }

package apidoc

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Send sends a request to the server at base, such as http://127.0.0.1:8080, and returns its answer. The target goes out letter by letter.
func Send(ctx context.Context, client *http.Client, base string, request Request) (Answer, error) {
	out, err := http.NewRequestWithContext(ctx, request.Method, base, bytes.NewReader(request.Body))
	if err != nil {
		return Answer{}, fmt.Errorf("make request %s %s: %w", request.Method, request.Target, err)
	}
	// What is opaque is written as it is; but two slashes in front would make a host of it.
	if rest, slashes := strings.CutPrefix(request.Target, "//"); slashes {
		if out.URL, err = url.Parse(base + "//" + rest); err != nil {
			return Answer{}, fmt.Errorf("make request %s %s: %w", request.Method, request.Target, err)
		}
	} else {
		out.URL = &url.URL{Scheme: out.URL.Scheme, Host: out.URL.Host, Opaque: request.Target}
	}
	if request.Header != nil {
		out.Header = request.Header.Clone()
	}
	response, err := client.Do(out)
	if err != nil {
		return Answer{}, fmt.Errorf("send %s %s: %w", request.Method, request.Target, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("read the answer to %s %s: %w", request.Method, request.Target, err)
	}
	return Answer{Status: response.StatusCode, Header: response.Header, Body: body}, nil
}

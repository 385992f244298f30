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
)

// decode reads the body, one JSON object, into v. The error names the member.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return &failure{http.StatusRequestEntityTooLarge, ops.CodeTooLarge, fmt.Sprintf("the body is larger than %d bytes", MaxBody)}
	case err != nil:
		return badRequest("the body could not be read")
	case len(data) == 0:
		return badRequest("the body is empty; it must be a JSON object")
	}
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

// query reads the parameters of a request: those in known, each at most once.
func query(r *http.Request, known ...string) (map[string]string, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query cannot be read: " + err.Error())
	}
	got := make(map[string]string, len(values))
	for name, all := range values {
		switch {
		case !slices.Contains(known, name):
			return nil, badRequest(fmt.Sprintf("%.40q: is not a parameter of this path", name))
		case len(all) > 1:
			return nil, badRequest(name + ": comes twice")
		}
		got[name] = all[0]
	}
	return got, nil
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

package admin_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"flashgate/internal/admin"
	"flashgate/internal/ops"
)

// serve puts the API of a world behind a real listener and returns a client for it.
func serve(t *testing.T, handler http.Handler) *admin.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client := admin.NewClient(server.URL+"/", token)
	t.Cleanup(client.Close)
	return client
}

func TestClientGetsWhatTheServerSays(t *testing.T) {
	w := newWorld()
	w.put(1, 50)
	client := serve(t, w.api(t))
	ctx := t.Context()
	created, err := client.CreateSale(ctx, []byte(body("id", `7`, "items[0].id", `7001`)))
	if err != nil || created.Value.ID != 7 || created.Value.Items[0].ID != 7001 || !strings.Contains(string(created.JSON), `"startsAt":"2026-11-27T12:00:00.000Z"`) {
		t.Errorf("created %s, %v", created.JSON, err)
	}
	if got := created.Value.StartsAt; got.UTC().Hour() != 12 {
		t.Errorf("the start was read as %v", got)
	}
	if shown, err := client.Sale(ctx, 7); err != nil || string(shown.JSON) != string(created.JSON) {
		t.Errorf("shown %s, %v", shown.JSON, err)
	}
	if page, err := client.Sales(ctx, 1, ""); err != nil || len(page.Value.Sales) != 1 || *page.Value.NextCursor != "1" {
		t.Errorf("a page is %s, %v", page.JSON, err)
	} else if page, err = client.Sales(ctx, 1, *page.Value.NextCursor); err != nil || page.Value.Sales[0].ID != 7 || page.Value.NextCursor != nil {
		t.Errorf("the next page is %s, %v", page.JSON, err)
	}
	if it, err := client.Item(ctx, 1001); err != nil || *it.Value.Available != 50 || len(it.Value.Shards) != 2 {
		t.Errorf("the item is %s, %v", it.JSON, err)
	}
	w.redisDown = true
	if it, err := client.Item(ctx, 1001); err != nil || it.Value.Available != nil || it.Value.Shards[1].Stock != nil {
		t.Errorf("the item without Redis is %s, %v", it.JSON, err)
	}
}

// nothing is a listener that has no path of the admin API.
func nothing(message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ops.WriteError(w, http.StatusNotFound, ops.CodeNotFound, message)
	})
}

func TestClientErrors(t *testing.T) {
	elsewhere := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	for _, test := range []struct {
		name    string
		handler http.Handler
		want    string
	}{
		{"a refusal", newWorld().api(t), "item 5 does not exist (404 NOT_FOUND)"},
		{
			"a wrong token", ops.RequireToken("another", http.NotFoundHandler()),
			"the admin token is missing or wrong (401 UNAUTHORIZED)",
		},
		{"another server", http.NotFoundHandler(), "the server answers with status 404 and no message of the admin API; is this the admin listener?"},
		{"a redirect, which must not see the token", http.RedirectHandler(other.URL, http.StatusTemporaryRedirect), "the server answers with status 307 and no message"},
		{
			"an answer that is no JSON", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }),
			"read the answer of the admin API: invalid character",
		},
		{
			"the public edge", nothing("there is nothing under this path"),
			"there is nothing under this path; this looks like the public address of a gateway, and the admin API is at its admin listener (FLASHGATE_ADMIN_LISTEN, by default port 9090) (404",
		},
		{
			"a consumer", nothing("there is nothing at this path"),
			"there is nothing at this path; this looks like the admin listener of a consumer, or of an older version, and the admin API is at that of a gateway (404",
		},
	} {
		_, err := serve(t, test.handler).Item(t.Context(), 5)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
	if elsewhere != 0 {
		t.Error("the client followed a redirect")
	}
	var refusal *admin.Refusal
	if _, err := serve(t, newWorld().api(t)).Restock(t.Context(), 5, 0, ""); !errors.As(err, &refusal) || refusal.Status != 400 || refusal.Code != "BAD_REQUEST" {
		t.Errorf("the refusal is %+v", refusal)
	}
}

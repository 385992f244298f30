package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"flashgate/internal/ops"
)

// TestNoOtherSpellingOfAPathIsServed asks for /admin in spellings that a rule on the decoded path, on letters or on prefixes would let through.
// With the token they are no path either: a check that only the missing token passes would prove nothing.
func TestNoOtherSpellingOfAPathIsServed(t *testing.T) {
	s := listen(t, nil)
	for _, target := range []string{
		"//admin", "/x/../admin", "/x/%2e%2e/admin", "/%61dmin", "/x%2fadmin", "/ADMIN", "/admin/", "/adminx", "/public/../admin",
		"/./admin", "/admin/.", "/admin/..", "/admin//sales", "/admin/sales/", "/admin%2fsales", "/admin;x", "/admin\\sales", "/Admin/sales",
		"/%2fadmin", "/%00admin", "/admin%00", "/admin/%20", "/livez/", "/LIVEZ", "//livez", "/livez%2f", "/livez/../livez", "/metrics/", "//metrics",
		"/debug/pprof", "/debug//pprof/", "/debug/pprof/heap/", "/debug/pprof/../pprof/heap", "/debug/pprof/%68eap", "/debug/pprof//heap", "/debug",
		"/", "*", "http://x/admin", "http://x//admin", "/é",
	} {
		for _, header := range []string{"X-None: 1", bearer} {
			got := ask(t, s, "GET", target, header)
			// What is no request at all (a raw byte, an absolute target without path) net/http itself refuses with 400.
			if got.status != 404 && got.status != 401 && got.status != 400 || strings.Contains(got.body, "data") {
				t.Errorf("GET %s with %q: %d %s", target, header, got.status, got.body)
			}
			if header == bearer && got.status == 401 {
				t.Errorf("GET %s is treated as admin: it asks for the token", target)
			}
			if got.header.Get("Location") != "" {
				t.Errorf("GET %s is redirected to %s", target, got.header.Get("Location"))
			}
		}
	}
	for target, withToken := range map[string]int{"/admin": 200, "/admin/sales": 200, "/admin/sales/1?x=%2f": 200, "/adminx": 404} {
		if got := ask(t, s, "GET", target, bearer); got.status != withToken {
			t.Errorf("GET %s with token: %d, want %d", target, got.status, withToken)
		}
		without := min(withToken, 404)
		if withToken == 200 {
			without = 401
		}
		if got := ask(t, s, "GET", target); got.status != without || strings.Contains(got.body, "data") {
			t.Errorf("GET %s without token: %d %s, want %d", target, got.status, got.body, without)
		}
	}
	if got := ask(t, s, "OPTIONS", "*"); got.status != 404 {
		t.Errorf("OPTIONS *: %d", got.status)
	}
}

func TestPathsWithoutAnAdminAPI(t *testing.T) {
	s := listen(t, func(cfg *ops.Config) { cfg.Admin = nil })
	for target, want := range map[string]int{"/admin": 404, "/admin/sales": 404, "/livez": 200, "/readyz": 200, "/metrics": 200} {
		if got := ask(t, s, "GET", target, bearer); got.status != want {
			t.Errorf("GET %s: %d, want %d", target, got.status, want)
		}
	}
}

func TestTheTokenIsRequired(t *testing.T) {
	s := listen(t, nil)
	unset := listen(t, func(cfg *ops.Config) { cfg.Token, cfg.Admin = "", ops.RequireToken("", admin) })
	for _, test := range []struct {
		server  *ops.Server
		headers []string
		want    int
	}{
		{s, nil, 401},
		{s, []string{"Authorization: Bearer wrong"}, 401},
		{s, []string{"Authorization: Bearer"}, 401},
		{s, []string{"Authorization: Bearer "}, 401},
		{s, []string{"Authorization: Bearer  " + token}, 401},
		{s, []string{"Authorization: Bearer " + token + "x"}, 401},
		{s, []string{"Authorization: Bearer " + token[:5]}, 401},
		{s, []string{"Authorization: Basic " + token}, 401},
		{s, []string{"Authorization: " + token}, 401},
		{s, []string{bearer, bearer}, 401},
		{s, []string{"Authorization: Bearer x", bearer}, 401},
		{s, []string{bearer}, 200},
		{s, []string{"authorization: bearer " + token}, 200},
		{unset, nil, 401},
		{unset, []string{"Authorization: Bearer "}, 401},
		{unset, []string{"Authorization: Bearer"}, 401},
		{unset, []string{bearer}, 401},
	} {
		for _, target := range []string{"/admin/sales", "/debug/pprof/", "/debug/pprof/heap"} {
			got := ask(t, test.server, "GET", target, test.headers...)
			if got.status != test.want {
				t.Errorf("GET %s with %q: %d, want %d", target, test.headers, got.status, test.want)
			}
			if got.status != 401 {
				continue
			}
			var body ops.ErrorBody
			if err := json.Unmarshal([]byte(got.body), &body); err != nil || body.Code != "UNAUTHORIZED" || body.Message == "" {
				t.Errorf("GET %s with %q answers %s", target, test.headers, got.body)
			}
			if !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Bearer ") {
				t.Errorf("GET %s with %q: WWW-Authenticate is %q", target, test.headers, got.header.Get("WWW-Authenticate"))
			}
		}
	}
}

func TestProfiles(t *testing.T) {
	s := listen(t, nil)
	for target, want := range map[string]int{
		"/debug/pprof/": 200, "/debug/pprof/goroutine?debug=1": 200, "/debug/pprof/heap": 200, "/debug/pprof/symbol": 200,
		"/debug/pprof/cmdline": 404, "/debug/pprof/none": 404,
	} {
		if got := ask(t, s, "GET", target, bearer); got.status != want {
			t.Errorf("GET %s: %d, want %d", target, got.status, want)
		}
	}
	if got := ask(t, s, "DELETE", "/debug/pprof/heap", bearer); got.status != 405 {
		t.Errorf("DELETE of a profile: %d", got.status)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	var fault error
	s := listen(t, func(cfg *ops.Config) {
		cfg.Readiness = ops.NewReadiness(ops.ReadinessConfig{Fresh: -1})
		cfg.Readiness.Add("postgres", func(context.Context) error { return nil })
		cfg.Readiness.Add("topic flash-sale-orders", func(context.Context) error { return fault })
	})
	if got := ask(t, s, "GET", "/readyz"); got.status != 200 || got.body != `{"status":"ready"}`+"\n" {
		t.Errorf("/readyz: %d %s", got.status, got.body)
	}
	fault = errors.New("does not  exist")
	got := ask(t, s, "GET", "/readyz")
	if want := `{"status":"not ready","missing":[{"check":"topic flash-sale-orders","reason":"does not exist"}]}` + "\n"; got.status != 503 || got.body != want {
		t.Errorf("/readyz: %d %s, want 503 %s", got.status, got.body, want)
	}
	if got := ask(t, s, "GET", "/livez"); got.status != 200 {
		t.Errorf("/livez of a process that is not ready: %d", got.status)
	}
	got = ask(t, s, "GET", "/metrics")
	for _, want := range []string{"go_goroutines ", "process_open_fds "} {
		if !strings.Contains(got.body, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	for _, target := range []string{"/livez", "/readyz", "/metrics"} {
		if got := ask(t, s, "POST", target); got.status != 405 || got.header.Get("Allow") != "GET, HEAD" || !strings.Contains(got.body, "METHOD_NOT_ALLOWED") {
			t.Errorf("POST %s: %d, Allow %q, %s", target, got.status, got.header.Get("Allow"), got.body)
		}
		if got := ask(t, s, "HEAD", target); got.body != "" || got.status == 405 {
			t.Errorf("HEAD %s: %d %q", target, got.status, got.body)
		}
	}
}

func TestHeadersAreLimited(t *testing.T) {
	s := listen(t, nil)
	if got := ask(t, s, "GET", "/livez", "X-Large: "+strings.Repeat("x", 32<<10)); got.status != 431 {
		t.Errorf("32 KiB of headers: %d, want 431", got.status)
	}
}

func TestShutdownWaitsForRequests(t *testing.T) {
	s, conn, leave := requestInFlight(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(ctx) }()
	<-s.Done() // no longer listening
	close(leave)
	if body, err := io.ReadAll(conn); err != nil || !strings.Contains(string(body), "200 OK") {
		t.Errorf("the request in flight got %q, %v", body, err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("a second shutdown: %v", err)
	}
	if err := s.Err(); err != nil {
		t.Errorf("after a shutdown, Err is %v", err)
	}
}

func TestShutdownCutsRequestsOffInTheEnd(t *testing.T) {
	s, conn, leave := requestInFlight(t)
	defer close(leave)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(ctx); err == nil {
		t.Error("a shutdown that cut a request off reports nothing")
	}
	if body, err := io.ReadAll(conn); len(body) > 0 {
		t.Errorf("the request that was cut off got %q, %v", body, err)
	}
}

// requestInFlight starts a server and a request that is answered when leave is closed.
func requestInFlight(t *testing.T) (s *ops.Server, conn net.Conn, leave chan struct{}) {
	t.Helper()
	entered, leave := make(chan struct{}), make(chan struct{})
	readiness := ops.NewReadiness(ops.ReadinessConfig{})
	readiness.Add("slow", func(context.Context) error {
		close(entered)
		<-leave
		return nil
	})
	s, err := ops.Listen(ops.Config{Addr: "127.0.0.1:0", Readiness: readiness, Gatherer: ops.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	conn, err = net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-entered
	return s, conn, leave
}

// A panic ends its connection, and the line about it tells neither who asked nor what the panic was about.
func TestAPanicIsToldWithoutItsValue(t *testing.T) {
	var out strings.Builder
	s := listen(t, func(cfg *ops.Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
		cfg.Admin = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("alice bought") })
	})
	if got, err := http.Get("http://" + s.Addr() + "/admin"); err == nil {
		t.Errorf("status %d", got.StatusCode)
		_ = got.Body.Close()
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "panic=string") || strings.Contains(text, "alice bought") || strings.Contains(text, "127.0.0.1") {
		t.Errorf("the log says %s", text)
	}
}

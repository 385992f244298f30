package ops_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"flashgate/internal/ops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "open-sesame"

// admin stands for the admin API: data behind the token, at every path.
var admin = ops.RequireToken(token, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	ops.WriteJSON(w, http.StatusOK, map[string]string{"data": r.URL.Path})
}))

// listen starts a server for one test.
func listen(t *testing.T, change func(*ops.Config)) *ops.Server {
	t.Helper()
	cfg := ops.Config{Addr: "127.0.0.1:0", Token: token, Readiness: ops.NewReadiness(ops.ReadinessConfig{}), Gatherer: ops.NewRegistry(), Admin: admin}
	if change != nil {
		change(&cfg)
	}
	s, err := ops.Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request with exactly this target, which net/http's client would tidy up.
func ask(t *testing.T, s *ops.Server, method, target string, headers ...string) answer {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // a test
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", method, target)
	for _, line := range headers {
		request += line + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	defer response.Body.Close() //nolint:errcheck // a test
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(body)}
}

const bearer = "Authorization: Bearer " + token

package devstack_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

// redisDo sends one command and returns the first line of the reply, or an empty text
// when none comes within patience.
func redisDo(addr string, patience time.Duration, args ...string) string {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return ""
	}
	defer conn.Close() //nolint:errcheck // the reply counts
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return ""
	}
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := conn.Write([]byte(request.String())); err != nil {
		return ""
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return ""
	}
	return strings.TrimSpace(line)
}

func TestRedisLife(t *testing.T) {
	t.Parallel()
	r := devtest.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	addr := r.Addr()
	if r.URL() != "redis://"+addr {
		t.Errorf("the URL is %s", r.URL())
	}
	expect := func(patience time.Duration, want string, args ...string) {
		t.Helper()
		if got := redisDo(addr, patience, args...); got != want {
			t.Fatalf("%v says %q, want %q", args, got, want)
		}
	}
	const long, short = 10 * time.Second, 100 * time.Millisecond
	expect(long, "+OK", "SET", "unit", "kept")

	must(t, r.Pause())
	expect(short, "", "PING")
	must(t, r.Resume())
	expect(long, "+PONG", "PING")

	must(t, r.Kill())
	<-r.Done()
	expect(long, "", "PING")
	must(t, r.Restart(startContext(t)))
	expect(long, ":4", "STRLEN", "unit")

	must(t, r.Pause())
	must(t, r.Stop()) // wakes it first
	must(t, r.Stop())
	expect(long, "", "PING")
}

func TestRedisStartSaysWhyItFailed(t *testing.T) {
	t.Parallel()
	r, err := devstack.StartRedis(startContext(t), devstack.RedisConfig{Args: []string{"--no-such-option", "1"}})
	if err == nil {
		t.Fatal("started", r.Stop())
	}
	if !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("the error is %v", err)
	}
}

func TestMiniRedisExpiresByTheClock(t *testing.T) {
	t.Parallel()
	r := devtest.MiniRedis(t)
	if got := redisDo(r.Addr(), 10*time.Second, "SET", "unit", "short", "PX", "20"); got != "+OK" {
		t.Fatalf("SET says %q", got)
	}
	devtest.Eventually(t, time.Minute, func() bool {
		return redisDo(r.Addr(), 10*time.Second, "EXISTS", "unit") == ":0"
	}, "the key is gone")

	redisDo(r.Addr(), 10*time.Second, "SET", "unit", "kept")
	r.Stop()
	r.Stop()
	if got := redisDo(r.Addr(), time.Second, "PING"); got != "" {
		t.Errorf("after Stop it says %q", got)
	}
	must(t, r.Restart())
	if got := redisDo(r.Addr(), 10*time.Second, "STRLEN", "unit"); got != ":4" {
		t.Errorf("after Restart it says %q", got)
	}
}

package e2e

import (
	"net"
	"strings"
	"sync"
	"testing"
)

// between accepts connections in the place of a server, whose address is asked for with each of them, until the test ends, and returns the address. forth carries what a client says to the server,
// back what the server says to the client; each returns when its connection has ended, and closes the other one. At the end of the test, release is
// called before connections are closed.
func between(t *testing.T, server func() string, forth, back func(to, from net.Conn), release func()) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mutex sync.Mutex
	var open []net.Conn
	var copying sync.WaitGroup
	copying.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server())
			if err != nil {
				_ = client.Close()
				continue
			}
			mutex.Lock()
			open = append(open, client, upstream)
			mutex.Unlock()
			copying.Go(func() { forth(upstream, client) })
			copying.Go(func() { back(client, upstream) })
		}
	})
	t.Cleanup(func() {
		release()
		_ = listener.Close()
		mutex.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mutex.Unlock()
		copying.Wait()
	})
	return listener.Addr().String()
}

// withSetting is env with another value for one variable.
func withSetting(env []string, name, value string) []string {
	changed := append([]string(nil), env...)
	for i, setting := range changed {
		if strings.HasPrefix(setting, name+"=") {
			changed[i] = name + "=" + value
			return changed
		}
	}
	return append(changed, name+"="+value)
}

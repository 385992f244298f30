package e2e

import (
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// icyLine stands between a process and a server. While it is frozen, connections stay open and new ones are accepted, and nothing comes through.
type icyLine struct {
	url    string // of the server, through the line
	ice    sync.RWMutex
	frozen bool
}

func newIcyLine(t *testing.T, server string) *icyLine {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	behind := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u.Host = listener.Addr().String()
	line := &icyLine{url: u.String()}
	var mutex sync.Mutex
	var open []net.Conn
	var copying sync.WaitGroup
	pass := func(to, from net.Conn) {
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			line.ice.RLock()
			if err == nil {
				_, err = to.Write(buffer[:n])
			}
			if err != nil {
				_, _ = to.Close(), from.Close()
			}
			line.ice.RUnlock()
			if err != nil {
				return
			}
		}
	}
	copying.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", behind)
			if err != nil {
				_ = client.Close()
				continue
			}
			mutex.Lock()
			open = append(open, client, upstream)
			mutex.Unlock()
			copying.Go(func() { pass(client, upstream) })
			copying.Go(func() { pass(upstream, client) })
		}
	})
	t.Cleanup(func() {
		line.thaw()
		_ = listener.Close()
		mutex.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mutex.Unlock()
		copying.Wait()
	})
	return line
}

// freeze and thaw are called by the test alone.
func (l *icyLine) freeze() {
	l.ice.Lock()
	l.frozen = true
}

func (l *icyLine) thaw() {
	if l.frozen {
		l.frozen = false
		l.ice.Unlock()
	}
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

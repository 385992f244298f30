package e2e

import (
	"net"
	"net/url"
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
	line := &icyLine{}
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
	host := u.Host
	u.Host = between(t, func() string { return host }, pass, pass, line.thaw)
	line.url = u.String()
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

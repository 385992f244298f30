package e2e

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
)

// cutLine stands between a process and its database. It can break every connection right behind the COMMIT of a change that is in the audit table, and
// let nobody in afterwards.
type cutLine struct {
	url string // of the database, through the line

	mutex  sync.Mutex
	armed  bool
	broken bool
	open   map[net.Conn]bool
}

func newCutLine(t *testing.T, database string) *cutLine {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u.Host = listener.Addr().String()
	line := &cutLine{url: u.String(), open: map[net.Conn]bool{}}
	var copying sync.WaitGroup
	copying.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil || !line.keep(client, upstream) {
				_ = client.Close()
				continue
			}
			copying.Go(func() { _, _ = io.Copy(client, upstream); line.drop(client, upstream) })
			copying.Go(func() { line.watch(upstream, client); line.drop(client, upstream) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		line.breakAll()
		copying.Wait()
	})
	return line
}

// cutBehindCommit breaks everything behind the next COMMIT of a change.
func (l *cutLine) cutBehindCommit() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.armed = true
}

// mend lets connections through again.
func (l *cutLine) mend() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.armed, l.broken = false, false
}

func (l *cutLine) keep(connections ...net.Conn) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, c := range connections {
		if l.broken {
			_ = c.Close()
		} else {
			l.open[c] = true
		}
	}
	return !l.broken
}

func (l *cutLine) drop(connections ...net.Conn) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, c := range connections {
		_ = c.Close()
		delete(l.open, c)
	}
}

// breakAll breaks every connection but those that are spared.
func (l *cutLine) breakAll(spared ...net.Conn) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.broken = true
	for c := range l.open {
		if !slices.Contains(spared, c) {
			_ = c.Close()
		}
	}
}

// watch passes on what the client says. Of a COMMIT that is to be lost it cuts the way back, and every other way to ask what became of it, before it
// passes it on: no reply can be faster.
func (l *cutLine) watch(server, client net.Conn) {
	buffer := make([]byte, 64<<10)
	changes := false // the text of a statement is sent once per connection; other transactions commit, too
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		changes = changes || bytes.Contains(buffer[:n], []byte("INSERT INTO flash_sale_audit"))
		lost := changes && bytes.Contains(buffer[:n], []byte("commit\x00")) && l.lose()
		if lost {
			l.breakAll(server)
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
		if lost {
			// The server has read it when it ends the connection, which it does behind the COMMIT when nothing more can come.
			_ = server.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, server)
			return
		}
	}
}

// lose decides about a COMMIT, once, and lets nobody in from then on.
func (l *cutLine) lose() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	lost := l.armed
	l.armed, l.broken = false, l.broken || lost
	return lost
}

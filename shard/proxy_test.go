package shard

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy stands between a client and Redis and does to one call what networks do: it loses the call, or its reply, or
// keeps the reply for a while. Everything else passes.
type proxy struct {
	tb     testing.TB
	listen net.Listener
	target string

	mu     sync.Mutex
	conns  map[net.Conn]bool
	needle []byte      // what marks the call; nil: everything passes
	fate   fate        // what happens to it
	hook   func()      // runs when the call or its reply has been swallowed or is being kept
	kept   chan []byte // keeps replies until it is closed
}

type fate int

const (
	loseCall  fate = iota // the call never arrives, the connection breaks
	loseReply             // Redis runs the call, the connection breaks before its reply
	keepReply             // the reply waits for letGo
	tearApart             // of several calls sent at once the first is answered before the hook runs, the others come after it
)

func newProxy(tb testing.TB, redisURL string) *proxy {
	tb.Helper()
	u, err := url.Parse(redisURL)
	if err != nil {
		tb.Fatal(err)
	}
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{tb: tb, listen: listen, target: u.Host, conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := listen.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(c) })
		}
	})
	tb.Cleanup(func() {
		_ = listen.Close()
		p.breakAll()
		wg.Wait()
	})
	return p
}

func (p *proxy) URL() string { return "redis://" + p.listen.Addr().String() }

// next gives the next call that contains text its fate.
func (p *proxy) next(text string, f fate, hook func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.needle, p.fate, p.hook = []byte(text), f, hook
	p.kept = make(chan []byte)
}

// letGo sends the replies that were kept on their way.
func (p *proxy) letGo() { close(p.kept) }

func (p *proxy) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()
	marked := make(chan func(), 1) // what to do with the next reply, from the side that saw the call
	var wg sync.WaitGroup
	wg.Go(func() { p.calls(client, server, marked) })
	wg.Go(func() { p.replies(server, client, marked) })
	wg.Wait()
	p.mu.Lock()
	delete(p.conns, client)
	delete(p.conns, server)
	p.mu.Unlock()
}

func (p *proxy) calls(client, server net.Conn, marked chan<- func()) {
	defer server.Close() //nolint:errcheck // the other side notices
	buf := make([]byte, 1<<20)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		lose := false
		first := 0 // bytes that go ahead
		var between func()
		p.mu.Lock()
		if p.needle != nil && bytes.Contains(buf[:n], p.needle) {
			hook, kept := p.hook, p.kept
			if hook == nil {
				hook = func() {}
			}
			switch p.needle = nil; p.fate {
			case loseCall:
				lose = true
			case loseReply:
				marked <- func() { hook(); _ = client.Close() }
			case keepReply:
				marked <- func() { hook(); <-kept }
			case tearApart:
				replied := make(chan struct{})
				marked <- func() { close(replied) }
				first = secondCall(buf[:n])
				between = func() { <-replied; hook() }
			}
		}
		p.mu.Unlock()
		if lose {
			_ = client.Close()
			return
		}
		if between != nil {
			if _, err := server.Write(buf[:first]); err != nil {
				return
			}
			between()
		}
		if _, err := server.Write(buf[first:n]); err != nil {
			return
		}
	}
}

// secondCall is where the second EVALSHA of a pipeline begins.
func secondCall(pipeline []byte) int {
	name := []byte("EVALSHA")
	at := bytes.Index(pipeline, name) + len(name)
	at += bytes.Index(pipeline[at:], name)
	return bytes.LastIndexByte(pipeline[:at], '*')
}

func (p *proxy) replies(server, client net.Conn, marked <-chan func()) {
	defer client.Close() //nolint:errcheck // the other side notices
	buf := make([]byte, 1<<20)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		select {
		case act := <-marked:
			act()
		default:
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

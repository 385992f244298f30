package gateway

import (
	"net"
	"testing"
	"time"
)

// deadlines is a connection that remembers the last deadlines.
type deadlines struct {
	net.Conn
	read, write time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { d.read = t; return nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }

// Deadlines are the server's until a drain begins, and then the earlier one of the server's and the drain's; for an answer the latter
// counts from when it is written.
func TestDrainHasTheLastWordOnDeadlines(t *testing.T) {
	var all connections
	conn := &deadlines{}
	c := &connection{Conn: conn, listener: &listener{connections: &all}}
	all.add(c)
	set := func(at time.Time) {
		t.Helper()
		must(t, c.SetReadDeadline(at))
		must(t, c.SetWriteDeadline(at))
	}
	hour := time.Now().Add(time.Hour)
	for _, at := range []time.Time{hour, {}} {
		if set(at); !conn.read.Equal(at) || !conn.write.Equal(at) {
			t.Errorf("%v: read %v, write %v", at, conn.read, conn.write)
		}
	}
	by := time.Now().Add(time.Minute) // far off, however slow the machine
	all.hurry(by)
	if !conn.read.Equal(by) || !conn.write.Equal(by) {
		t.Errorf("hurried: read %v, write %v, want %v", conn.read, conn.write, by)
	}
	for _, at := range []time.Time{hour, {}} {
		before := time.Now()
		set(at)
		if after := time.Now(); !conn.read.Equal(by) || conn.write.Before(before.Add(drainHurry)) || conn.write.After(after.Add(drainHurry)) {
			t.Errorf("%v: read %v, write %v, want %v and a moment", at, conn.read, conn.write, by)
		}
	}
	soon := time.Now().Add(time.Millisecond)
	if set(soon); !conn.read.Equal(soon) || !conn.write.Equal(soon) {
		t.Errorf("soon: read %v, write %v, want %v", conn.read, conn.write, soon)
	}
	all.remove(c)
	if all.any() || !all.gone(t.Context()) {
		t.Error("somebody is left")
	}
}

package consumer

import (
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/broker"
)

// assignment is the set of partitions that the group has given to this member. The group changes it from a goroutine of the client.
//
// The pointer to a partition stands for one time of owning it: a record is worked on only while the pointer that it came with is the current one.
// Records that waited out a database while their partition went to another member, and came back, are dropped: they are read again.
type assignment struct {
	mu    sync.Mutex
	owned map[int32]*partition
}

// partition is how far one partition has come. Its fields belong to the session's goroutine.
type partition struct {
	number    int32
	begun     bool  // a record of it was fetched
	next      int64 // behind the last record that was handled
	epoch     int32 // the leader's, at that record
	committed int64 // what the broker has, as far as we know

	letters []*letter // that are not written, by offset
	// While it has letters it is not fetched.
	paused  bool
	retries int
	retryAt time.Time
}

func newAssignment() *assignment { return &assignment{owned: map[int32]*partition{}} }

// add takes partitions over.
func (a *assignment) add(topics map[string][]int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, number := range topics[broker.Orders] {
		a.owned[number] = &partition{number: number}
	}
}

// remove gives partitions away.
func (a *assignment) remove(topics map[string][]int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, number := range topics[broker.Orders] {
		delete(a.owned, number)
	}
}

// get returns a partition, nil when it is not ours.
func (a *assignment) get(number int32) *partition {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.owned[number]
}

// has reports whether p is still ours.
func (a *assignment) has(p *partition) bool { return a.get(p.number) == p }

// all returns the partitions in the order of their numbers.
func (a *assignment) all() []*partition {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]*partition, 0, len(a.owned))
	for _, p := range a.owned {
		out = append(out, p)
	}
	slices.SortFunc(out, func(p, q *partition) int { return int(p.number) - int(q.number) })
	return out
}

// each calls do for every partition that is ours, and keeps the group from taking one away meanwhile.
func (a *assignment) each(do func(p *partition)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.owned {
		do(p)
	}
}

// begin notes where reading started: the group's offset is there, or was never set.
func (p *partition) begin(first *kgo.Record) {
	if !p.begun {
		p.begun, p.next, p.committed = true, first.Offset, first.Offset
	}
}

// handled notes that every record up to last is stored, or is among the letters.
func (p *partition) handled(last *kgo.Record) { p.next, p.epoch = last.Offset+1, last.LeaderEpoch }

// safe returns the offset up to which everything is stored or set aside, and whether the broker has yet to be told.
func (p *partition) safe() (kgo.EpochOffset, bool) {
	if !p.begun {
		return kgo.EpochOffset{}, false
	}
	at := kgo.EpochOffset{Epoch: p.epoch, Offset: p.next}
	if len(p.letters) > 0 {
		first := p.letters[0].record
		at = kgo.EpochOffset{Epoch: first.LeaderEpoch, Offset: first.Offset}
	}
	return at, at.Offset > p.committed
}

package broker

import (
	"container/list"
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// maxAttempts bounds how often a record is handed to the client. Each further time follows a failure that was another record's.
	maxAttempts = 3
	// againAfter is the wait before a record is handed over again. It lets a burst of failures pass; a dead broker is noticed within it.
	againAfter = 50 * time.Millisecond
)

// attempt is one try to write some records of a call. franz-go fails a record together with everything that waits for the same partition, and looks
// at the context of the first record of a batch only. Two things follow, which attempts are for:
//
//   - A record can fail because of another one's deadline. It is tried again while it has time of its own.
//   - A record can wait behind another one with a later deadline, and would be sent after its own. So when a deadline passes, every attempt that
//     stands in front of it is cut short as well: A (deadline 12:00:05) is buffered, B (12:00:02) behind it, the broker hangs. At 12:00:02 the client
//     would do nothing, as B is not the first; at 12:00:04 the broker wakes up and would be sent both. Cutting A at 12:00:02 fails both, and A is
//     tried again behind whatever came since.
//
// Deadlines mostly come in the order of the records, so this costs one step per attempt.
type attempt struct {
	call   *call
	number int             // 1 for the first
	ctx    context.Context // of the call, unless it is cut short
	cancel context.CancelFunc

	// Guarded by Producer.mu.
	first   uint64 // its place among the attempts
	last    uint64 // the newest attempt whose records may stand in front of its own; 0 while they are being handed over
	element *list.Element
	pending int // records not given back
	again   []*kgo.Record
}

// begin makes an attempt for n records. Called with mu held; the caller hands the records over after releasing it.
func (p *Producer) begin(c *call, number, n int) (*attempt, *kgo.Client) {
	a := &attempt{call: c, number: number, pending: n}
	a.ctx, a.cancel = context.WithCancel(c.ctx)
	c.current = a
	p.order++
	a.first = p.order
	a.element = p.waiting.PushBack(a)
	return a, p.client
}

// produce hands records to the client, which calls back for each of them, from its own goroutine. The client is never full, so this does not wait.
func (p *Producer) produce(client *kgo.Client, a *attempt, records []*kgo.Record) {
	for _, record := range records {
		client.TryProduce(a.ctx, record, func(record *kgo.Record, err error) { p.settled(client, a, record, err) })
	}
	p.mu.Lock()
	a.last = p.order
	p.mu.Unlock()
}

// settled takes back one record.
func (p *Producer) settled(client *kgo.Client, a *attempt, record *kgo.Record, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.pending--
	retry := err != nil && p.mayRetry(a, err)
	if retry {
		a.again = append(a.again, record)
	} else {
		p.release([]*kgo.Record{record})
	}
	switch {
	case err == nil:
		if a.call.left--; a.call.left == 0 {
			p.finish(a.call, nil)
		}
	case !retry:
		p.finish(a.call, p.reason(err))
		p.suspect(client, err)
	}
	if a.pending == 0 {
		p.complete(a)
	}
}

// release forgets records that will not be tried again. Called with mu held.
func (p *Producer) release(records []*kgo.Record) {
	p.records -= len(records)
	p.bytes -= sizeOf(records)
}

// complete closes an attempt whose records are all back, and sees to the next one for those that deserve it. Called with mu held.
func (p *Producer) complete(a *attempt) {
	p.unlist(a)
	a.cancel()
	a.call.current = nil
	if len(a.again) == 0 {
		p.over(a.call)
		return
	}
	p.metrics.retried.Add(float64(len(a.again)))
	p.wg.Add(1) // not from zero: the call is still watched, or its end being seen to
	time.AfterFunc(againAfter, func() {
		defer p.wg.Done()
		p.retry(a)
	})
}

// retry hands over again what failed for another record's sake.
func (p *Producer) retry(a *attempt) {
	p.mu.Lock()
	if a.call.finished || p.dead { // if it is dead, expired reports it
		p.release(a.again)
		p.over(a.call)
		p.mu.Unlock()
		return
	}
	next, client := p.begin(a.call, a.number+1, len(a.again))
	p.mu.Unlock()
	// Fresh copies: the client has written into the old ones, and may still be reading them in a request that it gave up.
	records := make([]*kgo.Record, len(a.again))
	for i, old := range a.again {
		records[i] = &kgo.Record{Topic: old.Topic, Key: old.Key, Value: old.Value, Headers: old.Headers}
	}
	p.produce(client, next, records)
}

// expired is called when the context of a call has ended: its deadline passed, or the producer is being closed.
func (p *Producer) expired(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		p.finish(c, ErrClosed)
		return
	}
	p.finish(c, ErrDeadline)
	a := c.current
	if a == nil {
		return
	}
	last := a.last
	if last == 0 {
		last = p.order // its records are being handed over right now
	}
	for element := p.waiting.Front(); element != nil; element = p.waiting.Front() {
		front := element.Value.(*attempt)
		if front.first > last {
			break
		}
		p.unlist(front)
		front.cancel()
	}
}

func (p *Producer) unlist(a *attempt) {
	if a.element != nil {
		p.waiting.Remove(a.element)
		a.element = nil
	}
}

// mayRetry reports whether a record that failed with err is tried again. Called with mu held.
func (p *Producer) mayRetry(a *attempt, err error) bool {
	if a.call.finished || p.dead || a.number >= maxAttempts || time.Until(a.call.deadline) <= againAfter {
		return false
	}
	// Ended contexts are those of other records, as this one still has time; a closed client has been replaced.
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kgo.ErrClientClosed)
}

// reason translates what franz-go reports into what callers are told.
func (p *Producer) reason(err error) error {
	switch {
	case p.ctx.Err() != nil || errors.Is(err, kgo.ErrClientClosed):
		return ErrClosed
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ErrDeadline
	case errors.Is(err, kgo.ErrMaxBuffered):
		return ErrFull
	}
	return err
}

// renewEvery bounds how often a client is replaced.
const renewEvery = time.Second

// suspect looks for the errors that franz-go never forgets, and has the client replaced. Called with mu held.
//
//   - The broker refused a producer id for good (no permission, say): every record from then on fails with that error, even when the broker has
//     changed its mind.
//   - The topic was deleted and made anew: the client sticks to the id of the old one.
func (p *Producer) suspect(client *kgo.Client, err error) {
	if p.dead || client != p.client || time.Since(p.renewed) < renewEvery || !unforgettable(err) {
		return
	}
	p.renewed = time.Now()
	p.cfg.Logger.Warn("replacing the Kafka producer", "error", err)
	p.metrics.renewed.Inc()
	p.wg.Add(1) // Close does not wait yet: the producer is not dead
	go func() {
		defer p.wg.Done()
		p.renew(client)
	}()
}

func unforgettable(err error) bool {
	var refusal *kerr.Error
	switch {
	case !errors.As(err, &refusal):
		return false
	case refusal == kerr.UnknownTopicID:
		return true
	case refusal.Retriable:
		return false
	}
	switch refusal {
	case kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.TopicAuthorizationFailed,
		kerr.PolicyViolation, kerr.InvalidTopicException:
		return false // about the record or the topic: the client is sound
	}
	return true
}

func (p *Producer) renew(old *kgo.Client) {
	fresh, err := kgo.NewClient(p.opts...)
	if err != nil {
		p.cfg.Logger.Error("cannot replace the Kafka producer", "error", err)
		return
	}
	p.mu.Lock()
	if p.dead {
		old = fresh
	} else {
		p.client = fresh
	}
	p.mu.Unlock()
	old.Close() // what the old client holds fails, and is tried again with the new one
}

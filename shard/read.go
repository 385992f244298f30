package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"flashgate/internal/sale"
)

// plain sends commands that are no scripts, of any shards, and hands each answer that is no error to read, in order. It
// returns the errors by command. Like runAll it returns by the end of ctx or of the call timeout.
func (s *Stock) plain(ctx context.Context, commands []rueidis.Completed, read func(int, rueidis.RedisResult) error) []error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	errs := make([]error, len(commands))
	answers, err := apart(ctx, s, func() []rueidis.RedisResult { return s.cfg.Client.DoMulti(ctx, commands...) })
	for i := range errs {
		if errs[i] = err; err != nil {
			continue
		}
		if errs[i] = answers[i].Error(); errs[i] == nil {
			errs[i] = read(i, answers[i])
		}
	}
	return errs
}

// eachShard sends a command to every shard of a layout and hands each answer to read, in order. The error names the shards
// that did not answer, or whose answer could not be read.
func (s *Stock) eachShard(ctx context.Context, layout Layout, what string, build func(keys) rueidis.Completed, read func(int, rueidis.RedisResult) error) error {
	if err := checkLayout(layout); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	commands := make([]rueidis.Completed, layout.Shards)
	for i := range commands {
		commands[i] = build(keysOf(layout.Item, i))
	}
	var errs []error
	for i, err := range s.plain(ctx, commands, read) {
		if err != nil {
			errs = append(errs, place{layout.Item, i}.wrap(what, err))
		}
	}
	return errors.Join(errs...)
}

// Buyers returns the users who have a mark in any shard of the item, in no order, and the epoch of the load whose marks they are. It returns all of them
// or an error, which is one of Prove's: whoever is not among them is told that he has nothing, and the answer may be kept.
//
// That takes no more than one question to each shard:
//
//   - A shard says in one instant whether it is loaded, whole and of this layout, of which load it is, and who has a mark. Were the marks read beside
//     that and not with it, a server could be wiped and loaded anew in between, and nobody would have marks in a shard that looks well before or
//     behind.
//   - The shards are read one after another. As long as their epochs are the same it is the same layout, in which the mark of a user is in one
//     shard and never moves: he is seen if he had one when that shard was read.
//   - Shards of different epochs are a load that is under way. It may bring marks that the older ones do not have, as that is what some loads are
//     for; so together they are nobody's buyers.
//
// What it cannot see is that a shard lost its last writes with the server that had them, in a way that adds up, or that a mark is missing which a
// later load brings back: either ends in a load, of another epoch. Whoever keeps the answer holds that against the item's.
func (s *Stock) Buyers(ctx context.Context, layout Layout) (users []string, epoch int64, err error) {
	if err := checkLayout(layout); err != nil {
		return nil, 0, fmt.Errorf("read buyers: %w", err)
	}
	calls := make([]call, layout.Shards)
	for i := range calls {
		calls[i] = call{scriptBuyers, keysOf(layout.Item, i).all(), []string{formatInt(int64(layout.Shards))}}
	}
	var errs []error
	for i, r := range s.runAll(ctx, calls) {
		some, of, err := readBuyers(r)
		switch {
		case i == 0:
			epoch = of
		case err == nil && len(errs) == 0 && of != epoch:
			err = fmt.Errorf("%w: it has epoch %d, shard 0 has %d", ErrNotLoaded, of, epoch)
		}
		if err != nil {
			errs = append(errs, place{layout.Item, i}.wrap("read buyers", err))
		}
		users = append(users, some...)
	}
	if len(errs) > 0 {
		return nil, 0, errors.Join(errs...)
	}
	return users, epoch, nil
}

func readBuyers(r result) (users []string, epoch int64, err error) {
	if err := r.failure(len(r.values) > 0); err != nil {
		return nil, 0, err
	}
	epoch, err = parseCount(r.values[0])
	return r.values[1:], epoch, err
}

// Holding is a mark and whose it is.
type Holding struct {
	User string
	sale.Mark
}

// Holdings are the marks of one shard: who holds which units, as Redis remembers it.
type Holdings struct {
	Marks []Holding // in no order, without those that could not be read; nil when the shard could not be read at all
	Whole bool      // every mark that is there could be read
}

// Holdings returns the marks of every shard of a layout, by shard. It is for people and for accounts; it moves every mark
// over the network. An error names the shards that did not answer, or hold something else, and says how many of a shard's
// marks could not be read, and whose never: errors end in logs. Everything else is good beside it.
func (s *Stock) Holdings(ctx context.Context, layout Layout) ([]Holdings, error) {
	if err := checkLayout(layout); err != nil {
		return nil, fmt.Errorf("read holdings: %w", err)
	}
	holdings := make([]Holdings, layout.Shards)
	err := s.eachShard(ctx, layout, "read holdings", func(k keys) rueidis.Completed {
		return s.cfg.Client.B().Hgetall().Key(k.buyers).Build()
	}, func(i int, answer rueidis.RedisResult) error {
		texts, err := answer.AsStrMap()
		if err != nil {
			return err
		}
		marks, err := decodeMarks(texts)
		holdings[i] = Holdings{Marks: marks, Whole: err == nil}
		return err
	})
	return holdings, err
}

// decodeMarks reads the marks of a shard. The error says how many could not be read; the others are good beside it.
func decodeMarks(texts map[string]string) ([]Holding, error) {
	marks := make([]Holding, 0, len(texts))
	for user, text := range texts {
		if mark, err := decodeMark(text); err == nil {
			marks = append(marks, Holding{user, mark})
		}
	}
	if bad := len(texts) - len(marks); bad > 0 {
		return marks, fmt.Errorf("%w: %d of %d marks", ErrUnreadable, bad, len(texts))
	}
	return marks, nil
}

// Mark reads the mark of a user; false when he has none. While the stock is being loaded a mark that is found is good, and
// one that is not found is ErrNotLoaded: it may be about to be written. Where the outbox has lost entries a mark is good only if
// its own stands, or a load has written it from a row; any other may be of an order that nobody will hear of, and is
// ErrUnreadable until the load that is due.
func (s *Stock) Mark(ctx context.Context, layout Layout, user string) (sale.Mark, bool, error) {
	if err := checkLayout(layout); err != nil {
		return sale.Mark{}, false, fmt.Errorf("read mark: %w", err)
	}
	at := place{layout.Item, sale.Home(user, layout.Shards)}
	k := at.keys()
	r, err := s.run(ctx, call{scriptMark, k.all(), []string{formatInt(int64(layout.Shards)), user}})
	if err != nil {
		return sale.Mark{}, false, at.wrap("read mark", err)
	}
	if found := (r.code == "OK" || r.code == "NOT_LOADED") && len(r.values) == 1 && r.values[0] != ""; found {
		mark, err := decodeMark(r.values[0])
		if err != nil {
			return sale.Mark{}, false, at.wrap("read mark", fmt.Errorf("%w: %w", ErrUnreadable, err))
		}
		return mark, true, nil
	}
	if err := r.fault(); err != nil {
		return sale.Mark{}, false, at.wrap("read mark", err)
	}
	return sale.Mark{}, false, nil
}

// Read reads what every shard of a layout holds. A shard that did not answer, or holds something else, has a Fault. The
// error names the shards that did not answer; the readings of the others are good beside it.
func (s *Stock) Read(ctx context.Context, layout Layout) ([]ShardReading, error) {
	if err := checkLayout(layout); err != nil {
		return nil, fmt.Errorf("read shards: %w", err)
	}
	readings := make([]ShardReading, layout.Shards)
	var silent []error
	for i, st := range s.survey(ctx, layout) {
		readings[i] = reading(st)
		if !st.answered {
			silent = append(silent, cmp.Or(st.loss, st.err))
		}
	}
	return readings, errors.Join(silent...)
}

// reading is what a state says to others.
func reading(st shardState) ShardReading {
	r := ShardReading{
		Shard: st.shard, Loaded: st.loaded, Buyers: st.marks, Entries: st.entries, MustEntries: st.mustEntries, Waiting: st.waiting, Pending: st.units,
		Moving: st.moving, K: st.k, Epoch: st.epoch, Token: st.token,
	}
	if st.stock >= 0 {
		r.Stock = &st.stock
	}
	if fault := cmp.Or(st.loss, st.err); !errors.Is(fault, ErrNotLoaded) { // Loaded says so
		r.Fault = fault
	}
	r.Readable = r.Fault == nil || isLayout(r.Fault)
	return r
}

// Outbox is what a shard's outbox holds at an instant.
type Outbox struct {
	Now     time.Time // by the clock of Redis, as Entry.At
	Entries []Entry   // in no order
	Bad     []BadEntry
}

// Outbox reads the outbox of one shard of an item, which may lie beyond the layout: a larger one may have left it behind.
// It needs no stock, so it works during a fence. The error wraps ErrUnreadable where the key is no outbox.
//
// It is bounded by ctx alone: after an outage of the broker an outbox may hold 200,000 entries, which take Redis about a second.
func (s *Stock) Outbox(ctx context.Context, layout Layout, shard int) (Outbox, error) {
	at := place{layout.Item, shard}
	r := s.runUntil(ctx, []call{{scriptOutbox, []string{at.keys().pending}, nil}})[0]
	if err := r.failure(len(r.values)%2 == 1); err != nil {
		return Outbox{}, at.wrap("read outbox", err)
	}
	now, err := parseMillis(r.values[0])
	if err != nil {
		return Outbox{}, at.wrap("read outbox", err)
	}
	reading := Outbox{Now: now}
	for i := 1; i < len(r.values); i += 2 {
		batch, blob := r.values[i], r.values[i+1]
		entry, err := decodeEntry(at, batch, blob)
		if err != nil {
			reading.Bad = append(reading.Bad, BadEntry{Batch: batch, Blob: blob, Fault: err, Foreign: errors.Is(err, errVersion)})
			continue
		}
		reading.Entries = append(reading.Entries, entry)
	}
	return reading, nil
}

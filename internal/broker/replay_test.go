package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/sale"
)

// replayed reads step after step, and returns the offsets by partition, "P:O", with a bar behind each step.
func replayed(t *testing.T, admin *broker.Admin, at broker.ReplayCursor, limit int, closed broker.ClosedLetters) (places []string) {
	t.Helper()
	for {
		step, err := admin.StoredLetters(brokertest.Context(t), at, limit, closed)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range step.Letters {
			places = append(places, fmt.Sprintf("%d:%d", l.Partition, l.Offset))
		}
		places = append(places, "|")
		if step.Next == nil {
			return places
		}
		if at, err = broker.ParseReplayCursor(step.Next.String()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStoredLetters(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		admin := s.Admin(t)
		if places := replayed(t, admin, broker.ReplayCursor{}, 5, nil); !slices.Equal(places, []string{"|"}) {
			t.Errorf("an empty topic has %v", places)
		}
		for n, partition := range []int32{2, 0, 0, 1, 2, 2, 2} {
			bury(t, s, partition, n, "x")
		}
		for _, c := range []struct {
			limit  int
			closed broker.ClosedLetters
			want   string
		}{
			{9, nil, "0:0 0:1 1:0 2:0 2:1 2:2 2:3 |"},
			{7, nil, "0:0 0:1 1:0 2:0 2:1 2:2 2:3 |"},
			{3, nil, "0:0 0:1 1:0 | 2:0 2:1 2:2 | 2:3 |"},
			{3, broker.ClosedLetters{0: {0}, 1: {0}, 2: {1, 2}}, "0:1 2:0 2:3 |"},
			{2, broker.ClosedLetters{0: {0, 1}, 1: {0}, 2: {0, 3}}, "2:1 2:2 |"},
			{2, broker.ClosedLetters{0: {0, 1}, 1: {0}, 2: {0, 1, 2, 3}}, "|"},
		} {
			if places := strings.Join(replayed(t, admin, broker.ReplayCursor{}, c.limit, c.closed), " "); places != c.want {
				t.Errorf("%d at once, closed %v: %s, want %s", c.limit, c.closed, places, c.want)
			}
			var letters []string
			for after := (broker.LetterCursor)(nil); ; {
				page, next, err := admin.Letters(brokertest.Context(t), after, c.limit, c.closed)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range page {
					letters = append(letters, fmt.Sprintf("%d:%d", l.Partition, l.Offset))
				}
				if after = next; next == nil {
					break
				}
			}
			slices.Sort(letters)
			if want := strings.Fields(strings.ReplaceAll(c.want, "|", "")); !slices.Equal(letters, want) {
				t.Errorf("%d to a page, closed %v: %v are listed, want %v", c.limit, c.closed, letters, want)
			}
		}
		// What comes while a replay is under way is for the next one.
		step, err := admin.StoredLetters(brokertest.Context(t), broker.ReplayCursor{}, 1, nil)
		if err != nil || step.Next == nil {
			t.Fatal(step, err)
		}
		bury(t, s, 0, 7, "x")
		bury(t, s, 3, 8, "x")
		if places := strings.Join(replayed(t, admin, *step.Next, 9, nil), " "); places != "0:1 1:0 2:0 2:1 2:2 2:3 |" {
			t.Errorf("the rest is %s", places)
		}
		// One alone, one that is not there yet, a partition that the topic does not have.
		for place, want := range map[[2]int64]string{{2, 1}: "2:1 |", {2, 4}: "|", {2, 1 << 40}: "|", {99, 0}: "|", {3, 0}: "3:0 |"} {
			if places := strings.Join(replayed(t, admin, broker.OneLetter(int32(place[0]), place[1]), 9, nil), " "); places != want {
				t.Errorf("letter %v: %s, want %s", place, places, want)
			}
		}
		var until kadm.Offsets
		until.AddOffset(broker.DeadLetters, 2, 3, -1)
		if _, err := kadm.NewClient(s.Client(t)).DeleteRecords(brokertest.Context(t), until); err != nil {
			t.Fatal(err)
		}
		if places := strings.Join(replayed(t, admin, *step.Next, 1, nil), " "); places != "0:1 | 1:0 | 2:3 |" {
			t.Errorf("behind deleted ones: %s", places)
		}
		if places := strings.Join(replayed(t, admin, broker.OneLetter(2, 1), 9, nil), " "); places != "|" {
			t.Errorf("a deleted letter: %s", places)
		}
		if step, err := admin.StoredLetters(brokertest.Context(t), broker.OneLetter(2, 1), 9, nil); err != nil || step.Starts[2] != 3 {
			t.Errorf("the starts are %v, %v", step.Starts, err)
		}
	})
}

// TestStoredLettersAreBounded has letters that are too large for one step.
func TestStoredLettersAreBounded(t *testing.T) {
	s := brokertest.NewFake(t)
	s.CreateTopics(t)
	for n := range 12 {
		bury(t, s, int32(n%2), n, strings.Repeat("x", 900_000))
	}
	steps := strings.Join(replayed(t, s.Admin(t), broker.ReplayCursor{}, 100, nil), " ")
	if steps != "0:0 0:1 0:2 0:3 0:4 0:5 1:0 1:1 1:2 1:3 | 1:4 1:5 |" {
		t.Errorf("the steps are %s", steps)
	}
}

// TestReplay makes dead letters as an order writer does, and puts them back.
func TestReplay(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		ctx := brokertest.Context(t)
		p := newProducer(t, s)
		made := events(7, 3, 3)
		made[1].Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		var originals []*kgo.Record
		for _, e := range made {
			originals = append(originals, broker.Encode(e))
		}
		s.Write(t, originals...)
		poison := &kgo.Record{Topic: broker.Orders, Key: []byte("k"), Value: []byte("{")}
		elsewhere := broker.Encode(made[0])
		elsewhere.Topic = "other"
		for _, r := range append(slices.Clone(originals), poison, elsewhere) {
			if err := p.ProduceDead(ctx, r, broker.ReasonRefused, errors.New("no such item")); err != nil {
				t.Fatal(err)
			}
		}
		cut := broker.DeadLetter(&kgo.Record{Topic: broker.Orders}, broker.ReasonRefused, errors.New("x"), time.Now())
		cut.Headers = append(cut.Headers, kgo.RecordHeader{Key: broker.DeadCut, Value: []byte("3000000")})
		bare := broker.Encode(made[2]) // somebody wrote it there by hand
		bare.Topic = broker.DeadLetters
		s.Write(t, cut, bare)

		step, err := s.Admin(t).StoredLetters(ctx, broker.ReplayCursor{}, 100, nil)
		if err != nil || len(step.Letters) != 7 {
			t.Fatal(len(step.Letters), err)
		}
		var records []*kgo.Record
		var kept []string
		for i := range step.Letters {
			record, event, err := step.Letters[i].Original()
			var poison *broker.PoisonError
			if errors.As(err, &poison) {
				kept = append(kept, poison.Reason)
				continue
			}
			if err != nil || !slices.ContainsFunc(made, func(e sale.Event) bool { return e == event }) {
				t.Errorf("%+v, %v", event, err)
			}
			records = append(records, record)
		}
		if slices.Sort(kept); !slices.Equal(kept, []string{"cut", "elsewhere", "malformed"}) {
			t.Errorf("kept for %v", kept)
		}
		for _, err := range p.Replay(ctx, records) {
			if err != nil {
				t.Error(err)
			}
		}
		// Behind the three come the same three, byte for byte and in the same order, and the one that was written by hand.
		all := s.Read(t, broker.Orders)
		if len(all) != 7 {
			t.Fatalf("%d records", len(all))
		}
		for i, want := range originals {
			got := all[3+i]
			if got.Partition != want.Partition || !bytes.Equal(got.Key, want.Key) || !bytes.Equal(got.Value, want.Value) || !slices.EqualFunc(got.Headers, broker.Encode(made[i]).Headers, func(a, b kgo.RecordHeader) bool {
				return a.Key == b.Key && bytes.Equal(a.Value, b.Value)
			}) {
				t.Errorf("%d was written as %s %s %v", i, got.Key, got.Value, got.Headers)
			}
		}
	})
}

// TestReplayTellsRecordsApart has one record that the brokers refuse for its size.
func TestReplayTellsRecordsApart(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s)
		var records []*kgo.Record
		for _, e := range events(7, 3, 3) {
			records = append(records, broker.Encode(e))
		}
		records[1].Value = bytes.Repeat([]byte("x"), 1_500_000)
		errs := p.Replay(brokertest.Context(t), records)
		if errs[0] != nil || !broker.TooLarge(errs[1]) || errs[2] != nil {
			t.Errorf("the errors are %v", errs)
		}
		if n := len(s.Read(t, broker.Orders)); n != 2 {
			t.Errorf("%d records were written", n)
		}
	})
}

func TestReplayWhileTheBrokerIsAway(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s)
		made := events(7, 3, 2)
		freeze(t, s, p)
		ctx, cancel := context.WithTimeout(brokertest.Context(t), 100*time.Millisecond)
		defer cancel()
		for i, err := range p.Replay(ctx, []*kgo.Record{broker.Encode(made[0]), broker.Encode(made[1])}) {
			if err == nil {
				t.Errorf("record %d was acknowledged by a frozen broker", i)
			}
		}
		ended, end := context.WithCancel(brokertest.Context(t))
		end()
		if errs := p.Replay(ended, []*kgo.Record{broker.Encode(made[0])}); errs[0] == nil {
			t.Error("written for nobody")
		}
		s.Thaw()
		waitEmpty(t, p)
	})
}

func TestReplayCursor(t *testing.T) {
	for _, c := range []struct {
		cursor broker.ReplayCursor
		text   string
	}{
		{broker.ReplayCursor{}, ""}, {broker.OneLetter(3, 17), "3-17_3-18"}, {broker.ReplayCursor{Until: broker.LetterCursor{1: 2}}, "_1-2"},
	} {
		if text := c.cursor.String(); text != c.text {
			t.Errorf("%v is written as %q", c.cursor, text)
		}
		if got, err := broker.ParseReplayCursor(c.text); err != nil || got.String() != c.text {
			t.Errorf("ParseReplayCursor(%q) = %v, %v", c.text, got, err)
		}
	}
	for _, text := range []string{"x", "0-1", "_", "0-1_", "0-1_x", "x_0-1", "0-1_0-2_0-3", "_01-2", " _0-1"} {
		if c, err := broker.ParseReplayCursor(text); !errors.Is(err, broker.ErrBadLetterCursor) {
			t.Errorf("ParseReplayCursor(%q) = %v, %v", text, c, err)
		}
	}
}

func TestTheIdOfTheLetterTopic(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		first, err := s.Admin(t).LetterTopic(brokertest.Context(t))
		if err != nil || first == [16]byte{} {
			t.Fatal(first, err)
		}
		s.DeleteTopics(t)
		if id, err := s.Admin(t).LetterTopic(brokertest.Context(t)); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Errorf("a topic that is not there has the id %v, %v", id, err)
		}
		s.CreateTopics(t)
		if again, err := s.Admin(t).LetterTopic(brokertest.Context(t)); err != nil || again == first || again == [16]byte{} {
			t.Errorf("made anew the id is %v, before %v; %v", again, first, err)
		}
	})
}

package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

var letterTime = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// bury writes a dead letter, n seconds after letterTime, into a partition.
func bury(t *testing.T, s *brokertest.Server, partition int32, n int, value string) {
	t.Helper()
	original := &kgo.Record{Topic: broker.Orders, Partition: 9, Offset: int64(100 + n), Key: []byte(fmt.Sprint("key", n)), Value: []byte(value)}
	letter := broker.DeadLetter(original, broker.ReasonMalformed, errors.New("no JSON"), letterTime.Add(time.Duration(n)*time.Second))
	letter.Partition = partition
	client := s.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := client.ProduceSync(brokertest.Context(t), letter).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// walk reads page after page and returns the keys, with a bar behind each page.
func walk(t *testing.T, admin *broker.Admin, after broker.LetterCursor, limit int) (keys []string) {
	t.Helper()
	for {
		letters, next, err := admin.Letters(brokertest.Context(t), after, limit, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range letters {
			keys = append(keys, strings.TrimPrefix(*l.Key, "key"))
		}
		keys = append(keys, "|")
		if next == nil {
			return keys
		}
		// What a page ends with survives the way through an address.
		if after, err = broker.ParseLetterCursor(next.String()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLettersInOrder(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		admin := s.Admin(t)
		if keys := walk(t, admin, nil, 5); !slices.Equal(keys, []string{"|"}) {
			t.Errorf("an empty topic has %v", keys)
		}
		for n, partition := range []int32{2, 0, 0, 1, 2, 2, 2} { // partition 3 has none
			bury(t, s, partition, n, "x")
		}
		for limit, want := range map[int][]string{
			1: {"0", "|", "1", "|", "2", "|", "3", "|", "4", "|", "5", "|", "6", "|"},
			3: {"0", "1", "2", "|", "3", "4", "5", "|", "6", "|"},
			7: {"0", "1", "2", "3", "4", "5", "6", "|"},
			9: {"0", "1", "2", "3", "4", "5", "6", "|"},
		} {
			if keys := walk(t, admin, nil, limit); !slices.Equal(keys, want) {
				t.Errorf("in pages of %d: %v, want %v", limit, keys, want)
			}
		}
		// What comes between two pages is on the next one, wherever it lands: behind what was read, and in a partition that had nothing.
		letters, next, err := admin.Letters(brokertest.Context(t), nil, 6, nil)
		if err != nil || len(letters) != 6 || next == nil {
			t.Fatalf("%d letters, next %v, %v", len(letters), next, err)
		}
		bury(t, s, 3, 7, "x")
		bury(t, s, 0, 8, "x")
		if keys := walk(t, admin, next, 6); !slices.Equal(keys, []string{"6", "7", "8", "|"}) {
			t.Errorf("the next page has %v", keys)
		}
		// It leaves no group behind.
		groups, err := kadm.NewClient(s.Client(t)).ListGroups(brokertest.Context(t))
		if err != nil || len(groups) != 0 && slices.Contains(groups.Groups(), s.Config.Group) {
			t.Errorf("groups %v, %v", groups.Groups(), err)
		}
	})
}

func TestLettersSayWhatIsKnown(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		id := sale.NewOrderID(1001)
		named := `{"v":99,"orderId":"` + id.String() + `","quantity":"two"}`
		bury(t, s, 1, 0, named)
		bury(t, s, 1, 1, strings.Repeat("x", broker.MaxLetterText))
		bury(t, s, 1, 2, strings.Repeat("x", broker.MaxLetterText+1))
		bury(t, s, 1, 3, "\xff{}")
		bury(t, s, 1, 4, `{"orderId":"0b0b7a9e-5a8f-4c39-9f3c-0d6c2f0f8a11"}`)
		at := time.UnixMilli(letterTime.Add(5 * time.Second).UnixMilli())
		client := s.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		foreign := []kgo.RecordHeader{
			{Key: broker.DeadPartition, Value: []byte("x")}, {Key: broker.DeadOffset, Value: []byte("-3")}, {Key: broker.DeadTime, Value: []byte("today")},
			{Key: broker.DeadError, Value: bytes.Repeat([]byte("\xc3\xbc"), 2000)}, {Key: broker.DeadCut, Value: []byte("5000000")},
		}
		for _, r := range []*kgo.Record{
			{Topic: broker.DeadLetters, Partition: 1, Timestamp: at},
			{Topic: broker.DeadLetters, Partition: 1, Timestamp: at, Key: []byte{0xff}, Value: []byte{}, Headers: foreign},
		} {
			if err := client.ProduceSync(brokertest.Context(t), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		letters, next, err := s.Admin(t).Letters(brokertest.Context(t), nil, 100, nil)
		if err != nil || next != nil || len(letters) != 7 {
			t.Fatalf("%d letters, next %v, %v", len(letters), next, err)
		}
		l := letters[0]
		if l.Partition != 1 || l.Offset != 0 || !l.At.Equal(letterTime) || l.Reason != "malformed" || l.Error != "no JSON" || l.Topic != broker.Orders ||
			l.SourcePartition != 9 || l.SourceOffset != 100 || *l.Key != "key0" || *l.Value != named || l.ValueBytes != len(named) || l.OrderID != id {
			t.Errorf("the first letter is %+v", l)
		}
		if l := letters[1]; l.Value == nil || len(*l.Value) != broker.MaxLetterText || !l.OrderID.IsZero() {
			t.Errorf("a value that just fits: %d bytes, %v", l.ValueBytes, l.Value == nil)
		}
		for i, bytes := range map[int]int{2: broker.MaxLetterText + 1, 3: 3} {
			if l := letters[i]; l.Value != nil || l.ValueBytes != bytes {
				t.Errorf("letter %d shows a value of %d bytes", i, l.ValueBytes)
			}
		}
		if l := letters[4]; !l.OrderID.IsZero() {
			t.Errorf("an id that no order can have: %s", l.OrderID)
		}
		if l := letters[5]; l.Key != nil || l.Value != nil || l.ValueBytes != 0 || l.Reason != "" || l.Topic != "" || l.SourcePartition != -1 || l.SourceOffset != -1 || !l.At.Equal(at) {
			t.Errorf("a bare record: %+v", l)
		}
		if l := letters[6]; l.Key != nil || l.Value == nil || *l.Value != "" || l.ValueBytes != 5_000_000 || l.SourcePartition != -1 || l.SourceOffset != -1 || !l.At.Equal(at) || len(l.Error) > 1024 {
			t.Errorf("a record with headers of its own: %+v", l)
		}
	})
}

// TestLettersBehindDeletedOnes goes on where a cursor points to letters that are gone, and meets the end of a transaction, which is no letter.
func TestLettersBehindDeletedOnes(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		admin, ctx := s.Admin(t), brokertest.Context(t)
		for n := range 5 {
			bury(t, s, 1, n, "x")
		}
		_, next, err := admin.Letters(ctx, nil, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		var until kadm.Offsets
		until.AddOffset(broker.DeadLetters, 1, 3, -1)
		if _, err := kadm.NewClient(s.Client(t)).DeleteRecords(ctx, until); err != nil {
			t.Fatal(err)
		}
		for _, after := range []broker.LetterCursor{nil, next} {
			if keys := walk(t, admin, after, 1); !slices.Equal(keys, []string{"3", "|", "4", "|"}) {
				t.Errorf("behind %v: %v", after, keys)
			}
		}
		writer := s.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(devtest.Name("letters")))
		if err := writer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := writer.ProduceSync(ctx, &kgo.Record{Topic: broker.DeadLetters, Partition: 1, Key: []byte("key5")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := writer.EndTransaction(ctx, kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		if keys := walk(t, admin, nil, 5); !slices.Equal(keys, []string{"3", "4", "5", "|"}) {
			t.Errorf("with a transaction at the end: %v", keys)
		}
		// All of it is gone: there is nothing to wait for.
		until = kadm.Offsets{}
		until.AddOffset(broker.DeadLetters, 1, -1, -1)
		if _, err := kadm.NewClient(s.Client(t)).DeleteRecords(ctx, until); err != nil {
			t.Fatal(err)
		}
		if keys := walk(t, admin, next, 5); !slices.Equal(keys, []string{"|"}) {
			t.Errorf("behind the end: %v", keys)
		}
	})
}

// TestLettersThatAreDeletedWhileTheyAreRead holds the first fetch back until the records that it asks for are gone.
func TestLettersThatAreDeletedWhileTheyAreRead(t *testing.T) {
	s := brokertest.NewFake(t)
	s.CreateTopics(t)
	bury(t, s, 1, 0, "x")
	bury(t, s, 2, 1, "x")
	other := kadm.NewClient(s.Client(t))
	fetched, deleted := make(chan struct{}), make(chan struct{})
	asked := sync.OnceFunc(func() { close(fetched) })
	s.Fake.Cluster().ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		s.Fake.Cluster().SleepControl(func() {
			asked()
			<-deleted
		})
		return nil, nil, false
	})
	go func() {
		defer close(deleted)
		<-fetched
		var until kadm.Offsets
		until.AddOffset(broker.DeadLetters, 1, -1, -1)
		if _, err := other.DeleteRecords(t.Context(), until); err != nil {
			t.Error(err)
		}
	}()
	if keys := walk(t, s.Admin(t), nil, 5); !slices.Equal(keys, []string{"1", "|"}) {
		t.Errorf("the letters are %v", keys)
	}
	<-deleted
}

func TestLettersWhileTheBrokerIsAway(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		bury(t, s, 0, 0, "x")
		admin := s.Admin(t)
		s.Freeze()
		ctx, cancel := context.WithTimeout(brokertest.Context(t), 300*time.Millisecond)
		defer cancel()
		if letters, _, err := admin.Letters(ctx, nil, 5, nil); err == nil {
			t.Errorf("a frozen broker gives %v", letters)
		}
		s.Thaw()
		devtest.Eventually(t, brokertest.Timeout, func() bool {
			letters, _, err := admin.Letters(brokertest.Context(t), nil, 5, nil)
			return err == nil && len(letters) == 1
		}, "the letter is read when the broker is back")
	})
	brokertest.EachBare(t, func(t *testing.T, s *brokertest.Server) {
		if letters, _, err := s.Admin(t).Letters(brokertest.Context(t), nil, 5, nil); err == nil {
			t.Errorf("a topic that does not exist has %v", letters)
		}
	})
}

func TestLetterCursor(t *testing.T) {
	for _, c := range []struct {
		cursor broker.LetterCursor
		text   string
	}{
		{nil, ""}, {broker.LetterCursor{0: 0}, "0-0"}, {broker.LetterCursor{11: 5, 2: 1 << 62}, "2-4611686018427387904.11-5"},
	} {
		if text := c.cursor.String(); text != c.text {
			t.Errorf("%v is written as %q", c.cursor, text)
		}
	}
	for _, text := range []string{"x", "0", "0-", "-0", "0-1.", ".0-1", "0-01", "00-1", "+0-1", "0--1", "1-1.0-1", "0-1.0-2", "0-9223372036854775808", "2147483648-0", "0-1 "} {
		if c, err := broker.ParseLetterCursor(text); !errors.Is(err, broker.ErrBadLetterCursor) {
			t.Errorf("ParseLetterCursor(%q) = %v, %v", text, c, err)
		}
	}
}

func FuzzLetterCursor(f *testing.F) {
	f.Add("0-1.7-300")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := broker.ParseLetterCursor(text)
		if err == nil && c.String() != text {
			t.Errorf("%q was read as %v", text, c)
		}
	})
}

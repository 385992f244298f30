package shard

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"flashgate/internal/sale"
)

// Values in Redis are lines of fields with a tab between them. The scripts write and read the same forms:
//
//	mark      orderId quantity price currency reservedAtMs keyHash batchId        (the last two may be empty)
//	entry     1 reservedAtMs epoch reservations units                             (1 is the version)
//	          then a line for each event: orderId userId quantity keyHash price currency trace
//	transfer  destination units epoch takenAtMs
//
// No field can hold a tab or a line feed: user ids are checked for control characters where they enter, and so is every
// text of a request in checkRequest.

const (
	entryVersion = "1"
	mostVersions = 99 // a larger number in the place of the version is damage
)

// errVersion is the fault of an outbox entry whose head says that it is of another version.
var errVersion = errors.New("of another version")

// errFields is the fault of a line with other fields than its form has.
var errFields = errors.New("wrong fields")

// parseCount reads a plain decimal between 0 and 2^53-1, as the scripts do.
func parseCount(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > sale.MaxQuantity || strconv.FormatInt(n, 10) != text {
		return 0, fmt.Errorf("%q is not a plain decimal up to 2^53-1", text)
	}
	return n, nil
}

func parseQuantity(text string) (int64, error) {
	n, err := parseCount(text)
	if err == nil && n < 1 {
		err = fmt.Errorf("quantity %d is below 1", n)
	}
	return n, err
}

func parseMillis(text string) (time.Time, error) {
	n, err := parseCount(text)
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(n).UTC(), nil
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// encodeMark is the form in which a load writes marks.
func encodeMark(m sale.Mark) string {
	return strings.Join([]string{
		m.OrderID.String(), formatInt(m.Quantity), string(m.Price), m.Currency, formatInt(m.ReservedAt.UnixMilli()), m.KeyHash, m.Batch,
	}, "\t")
}

func decodeMark(text string) (sale.Mark, error) {
	f := strings.Split(text, "\t")
	if len(f) != 7 {
		return sale.Mark{}, fmt.Errorf("read mark: %w", errFields)
	}
	m := sale.Mark{Price: sale.Price(f[2]), Currency: f[3], KeyHash: f[5], Batch: f[6]}
	var e1, e2, e3 error
	m.OrderID, e1 = sale.ParseOrderID(f[0])
	m.Quantity, e2 = parseQuantity(f[1])
	m.ReservedAt, e3 = parseMillis(f[4])
	if err := errors.Join(e1, e2, e3); err != nil {
		return sale.Mark{}, fmt.Errorf("read mark: %w", err)
	}
	return m, nil
}

// markEvent is the event of the reservation that a mark stands for, made in the given epoch.
func markEvent(home place, user string, m sale.Mark, epoch int64, trace string) sale.Event {
	return sale.Event{
		OrderID: m.OrderID, ItemID: home.item, UserID: user, Quantity: m.Quantity, Shard: home.shard, Epoch: epoch,
		ReservedAt: m.ReservedAt, Price: m.Price, Currency: m.Currency, KeyHash: m.KeyHash, Trace: trace,
	}
}

// decodeEntry reads an outbox entry of the shard at the given place.
func decodeEntry(at place, batch, blob string) (Entry, error) {
	fail := func(err error) (Entry, error) { return Entry{}, fmt.Errorf("read outbox entry %s: %w", batch, err) }
	lines := strings.Split(blob, "\n")
	head := strings.Split(lines[0], "\t")
	if n, err := parseCount(head[0]); err == nil && n <= mostVersions && len(head) > 1 && head[0] != entryVersion {
		return fail(fmt.Errorf("%w: %s", errVersion, head[0]))
	}
	if len(head) != 5 || head[0] != entryVersion {
		return fail(errFields)
	}
	when, e1 := parseMillis(head[1])
	epoch, e2 := parseCount(head[2])
	count, e3 := parseCount(head[3])
	units, e4 := parseCount(head[4])
	if err := errors.Join(e1, e2, e3, e4); err != nil {
		return fail(err)
	}
	if count != int64(len(lines)-1) || count < 1 {
		return fail(fmt.Errorf("%d events, says %d", len(lines)-1, count))
	}
	entry := Entry{Batch: batch, At: when, Epoch: epoch, Events: make([]sale.Event, 0, count)}
	for _, line := range lines[1:] {
		event, err := decodeEvent(line)
		if err != nil {
			return fail(err)
		}
		if item, ok := event.OrderID.Item(); !ok || item != at.item {
			return fail(fmt.Errorf("order %s is not of this item", event.OrderID))
		}
		event.ItemID, event.Shard, event.Epoch, event.ReservedAt = at.item, at.shard, epoch, when
		units -= event.Quantity
		entry.Events = append(entry.Events, event)
	}
	if units != 0 {
		return fail(errors.New("quantities do not add up to the units it names"))
	}
	return entry, nil
}

func decodeEvent(line string) (sale.Event, error) {
	f := strings.Split(line, "\t")
	if len(f) != 7 {
		return sale.Event{}, errFields
	}
	e := sale.Event{UserID: f[1], KeyHash: f[3], Price: sale.Price(f[4]), Currency: f[5], Trace: f[6]}
	var e1, e2 error
	e.OrderID, e1 = sale.ParseOrderID(f[0])
	e.Quantity, e2 = parseQuantity(f[2])
	return e, errors.Join(e1, e2, sale.CheckUser(e.UserID))
}

// transfer is a record of units that have left their shard.
type transfer struct {
	id    string
	from  int
	to    int
	units int64
	epoch int64     // of the source, when they were taken
	at    time.Time // by the clock of Redis
}

func decodeTransfer(from int, id, record string) (transfer, error) {
	f := strings.Split(record, "\t")
	if len(f) != 4 {
		return transfer{}, fmt.Errorf("read transfer %s: %w", id, errFields)
	}
	to, e1 := parseCount(f[0])
	units, e2 := parseQuantity(f[1])
	epoch, e3 := parseCount(f[2])
	at, e4 := parseMillis(f[3])
	err := errors.Join(e1, e2, e3, e4)
	if err == nil && to >= sale.MaxShards {
		err = fmt.Errorf("no shard %d", to)
	}
	if err != nil {
		return transfer{}, fmt.Errorf("read transfer %s: %w", id, err)
	}
	return transfer{id: id, from: from, to: int(to), units: units, epoch: epoch, at: at}, nil
}

// checkRequest refuses what could not be told apart from the separators of the forms above, or counted.
func checkRequest(layout Layout, req *sale.Request) error {
	if err := checkLayout(layout); err != nil {
		return err
	}
	if err := sale.CheckUser(req.UserID); err != nil {
		return fmt.Errorf("user: %w", err)
	}
	if req.Quantity < 1 || req.Quantity > sale.MaxQuantity {
		return fmt.Errorf("quantity %d is not between 1 and 2^53-1", req.Quantity)
	}
	if item, ok := req.OrderID.Item(); !ok || item != layout.Item {
		return fmt.Errorf("order id %s is not of item %d", req.OrderID, layout.Item)
	}
	for _, text := range [...]string{req.KeyHash, string(req.Price), req.Currency, req.Trace} {
		for i := range len(text) {
			if text[i] < ' ' {
				return errors.New("control character in key hash, price, currency or trace")
			}
		}
	}
	return nil
}

func checkLayout(layout Layout) error {
	if layout.Item < 1 || layout.Item > sale.MaxID {
		return fmt.Errorf("item %d is not between 1 and 2^53-1", layout.Item)
	}
	if layout.Shards < 1 || layout.Shards > sale.MaxShards {
		return fmt.Errorf("%d shards are not between 1 and %d", layout.Shards, sale.MaxShards)
	}
	return nil
}

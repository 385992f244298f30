package reconcile

import (
	"bytes"
	"slices"

	"flashgate/internal/sale"
	"flashgate/shard"
)

// Report is what was found about an item, in units. Nil is what is unknown.
type Report struct {
	Item   sale.Item
	Shards []shard.ShardReading

	Free     *int64
	InFlight *int64 // reserved: of marks whose order is not live in the database, also those of Orders with the reasons EventLost and MarkLeft
	Moving   *int64 // in transfers, and of restocks that wait to be added
	// Drift is Quantity − Sold − Free − InFlight − Moving; above 0: units are missing from Redis. It is unknown, too, while an item is being loaded, and
	// where so much moves that the readings do not agree about a difference.
	Drift *int64
	// Unknown says why Drift is nil, for people: what server or shard could not be read, or what goes on. Empty where Drift is known.
	Unknown string
	// Orders are the orders concerned, in the order of their ids.
	Orders []Concern
	// Undecided: there are marks without a row, and whether their events still come is unknown: the brokers do not answer, or the order writers lag
	// behind. They count as in flight.
	Undecided bool
}

// Wrong reports whether there is something that a load puts right.
func (r *Report) Wrong() bool { return r.Drift != nil && *r.Drift != 0 || len(r.Orders) > 0 }

func (r *Report) add(concerns []Concern) {
	r.Orders = append(r.Orders, concerns...)
	slices.SortFunc(r.Orders, func(a, b Concern) int { return bytes.Compare(a.OrderID[:], b.OrderID[:]) })
}

// lastingConcerns are those that every reading has, for the same reason.
func lastingConcerns(streak []*reading) map[sale.OrderID]Concern {
	lasting := make(map[sale.OrderID]Concern)
	for id, o := range streak[0].concerns {
		if everywhere(streak[1:], func(r *reading) bool { return r.concerns[id].Reason == o.Reason }) {
			lasting[id] = o
		}
	}
	return lasting
}

// lastingSuspects are the marks that no reading finds a row for.
func lastingSuspects(streak []*reading) map[sale.OrderID]suspect {
	lasting := make(map[sale.OrderID]suspect)
	for id, s := range streak[0].rowless {
		if everywhere(streak[1:], func(r *reading) bool { _, ok := r.rowless[id]; return ok }) {
			lasting[id] = s
		}
	}
	return lasting
}

func everywhere(streak []*reading, holds func(*reading) bool) bool {
	return !slices.ContainsFunc(streak, func(r *reading) bool { return !holds(r) })
}

// numbers are what a report shows of a reading if of its live rows exactly those of lasting have no mark.
func numbers(r *reading, lasting map[sale.OrderID]Concern) (free, inFlight, moving, drift int64) {
	// What was sold behind the reading of its shard is not free any more.
	free = r.free - (r.unmarked(r.concerns) - r.unmarked(lasting))
	inFlight = r.held - r.heldLive
	moving = r.moving + r.owed
	drift = r.drift(lasting)
	// Units that are in two places until a transfer is finished are where they went.
	if surplus := r.item.Quantity - r.item.Sold - free - inFlight - moving; surplus < drift {
		moving += surplus - drift
	}
	return free, inFlight, moving, drift
}

// summarise adds settled readings of one epoch up.
func summarise(streak []*reading, lasting map[sale.OrderID]Concern) Report {
	last := streak[len(streak)-1]
	drift, known := judge(streak, lasting)
	report := Report{Item: last.item, Shards: readingsOf(last)}
	// Of the readings that say so, the latest that makes sense by itself.
	for _, r := range slices.Backward(streak) {
		free, inFlight, moving, of := numbers(r, lasting)
		if known && of != drift || free < 0 || moving < 0 {
			continue
		}
		report = Report{Item: r.item, Shards: readingsOf(r), Free: &free, InFlight: &inFlight, Moving: &moving}
		if known {
			report.Drift = &drift
		}
		break
	}
	if report.Drift == nil {
		report.Unknown = whyMoving
	}
	for _, o := range lasting {
		report.Orders = append(report.Orders, o)
	}
	report.add(nil)
	return report
}

// judge says what drift the readings agree about. One that adds up is enough for none; a drift has to be the same in all of them.
func judge(streak []*reading, lasting map[sale.OrderID]Concern) (drift int64, known bool) {
	drift, known = streak[0].drift(lasting), len(streak) >= fewest
	for _, r := range streak {
		of := r.drift(lasting)
		if of == 0 {
			return 0, true
		}
		known = known && of == drift
	}
	return drift, known
}

// unsettled is what can be said of one reading: the numbers that there are.
func unsettled(r *reading) Report {
	report := Report{Item: r.item, Shards: readingsOf(r), Unknown: r.why}
	if r.known {
		moving := r.moving + r.owed
		report.Moving = &moving
	}
	if r.known && r.whole {
		inFlight := r.held - r.heldLive
		report.InFlight = &inFlight
	}
	if r.loaded {
		report.Free = &r.free
	}
	return report
}

func readingsOf(r *reading) []shard.ShardReading {
	readings := make([]shard.ShardReading, len(r.shards))
	for i, s := range r.shards {
		readings[i] = s.ShardReading
	}
	return readings
}

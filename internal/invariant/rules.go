package invariant

import (
	"fmt"
	"slices"

	"flashgate/internal/sale"
)

// judge applies the rules.
func judge(b *books, s *stockState, answered []sale.OrderID) *Report {
	r := &Report{
		Item: b.item, Quantity: b.quantity, Sold: b.sold, Free: s.free, Moving: s.moving,
		Orders: make(map[sale.OrderStatus]int64), Unsettled: s.unsettled,
	}
	holders := make(map[[2]string][]order)
	for _, o := range b.orders {
		r.Orders[o.status] += o.quantity
		if o.status.Live() {
			r.Live += o.quantity
			holder := [2]string{o.limit, o.user}
			holders[holder] = append(holders[holder], o)
		}
	}
	r.always(b, holders)
	r.settle(b, s, answered)
	if len(r.Unsettled) == 0 {
		r.atRest(b, s)
	}
	return r
}

// always judges what holds at any time.
func (r *Report) always(b *books, holders map[[2]string][]order) {
	if r.Live > b.quantity {
		r.violate(NotOversold, "live orders hold %d units of %d", r.Live, b.quantity)
	}
	if r.Live != b.sold {
		r.violate(NotOversold, "the item says that %d units are sold, live orders hold %d", b.sold, r.Live)
	}
	var twice []string
	for holder, orders := range holders {
		if len(orders) > 1 {
			twice = append(twice, fmt.Sprintf("user %q has %d live orders", holder[1], len(orders)))
		}
	}
	r.violateEach(OneOrder, twice)
}

// settle finds out what is still on its way.
func (r *Report) settle(b *books, s *stockState, answered []sale.OrderID) {
	if b.loading {
		r.Unsettled = append(r.Unsettled, "a load is due or under way")
	}
	if b.corrections > 0 {
		r.Unsettled = append(r.Unsettled, fmt.Sprintf("%d corrections wait for the relay", b.corrections))
	}
	var open, unkept []string
	for user, mark := range s.marks {
		if _, ok := b.orders[mark.OrderID]; !ok {
			r.Open += mark.Quantity
			open = append(open, fmt.Sprintf("order %s of user %q is in Redis and not in the database", mark.OrderID, user))
		}
	}
	for _, id := range answered {
		if _, ok := b.orders[id]; !ok {
			unkept = append(unkept, fmt.Sprintf("order %s was promised and is not in the database", id))
		}
	}
	r.missing = append(some(open), some(unkept)...)
	r.Unsettled = append(r.Unsettled, r.missing...)
}

// atRest judges what holds when nothing is on its way.
func (r *Report) atRest(b *books, s *stockState) {
	if sum := r.Free + r.Moving + r.Live; sum != b.quantity {
		r.violate(Balance, "free %d + moving %d + live %d = %d, and not the quantity of %d", r.Free, r.Moving, r.Live, sum, b.quantity)
	}
	var ended, wrong []string
	for user, mark := range s.marks {
		o := b.orders[mark.OrderID]
		switch {
		case !o.status.Live():
			ended = append(ended, fmt.Sprintf("user %q still has the mark of order %s, which is %s", user, o.id, o.status))
		case o.user != user || o.quantity != mark.Quantity:
			wrong = append(wrong, fmt.Sprintf("the mark of user %q is about %d units, order %s of user %q about %d", user, mark.Quantity, o.id, o.user, o.quantity))
		}
	}
	for _, o := range b.orders {
		if o.status.Live() && s.marks[o.user].OrderID != o.id {
			wrong = append(wrong, fmt.Sprintf("user %q has the live order %s and no mark of it", o.user, o.id))
		}
	}
	r.violateEach(Returned, ended)
	r.violateEach(Balance, wrong)
}

func (r *Report) violate(rule Rule, format string, args ...any) {
	r.Violations = append(r.Violations, Violation{rule, fmt.Sprintf(format, args...)})
}

func (r *Report) violateEach(rule Rule, cases []string) {
	for _, text := range some(cases) {
		r.violate(rule, "%s", text)
	}
}

// some is the first few of many cases, in an order that does not change, and the number of the rest.
func some(cases []string) []string {
	if len(cases) <= listed {
		slices.Sort(cases)
		return cases
	}
	slices.Sort(cases)
	return append(cases[:listed:listed], fmt.Sprintf("and %d more of this kind", len(cases)-listed))
}

package admin

import (
	"slices"
	"time"

	"flashgate/internal/sale"
)

// EndsNow stands in the place of the end of a sale for the instant at which the gateway takes the change, by its own clock: the one by which it sells.
const EndsNow = "now"

// SalePatch is what is to change of a sale, as it is sent. Nil leaves a value as it is.
type SalePatch struct {
	Name     *string `json:"name,omitempty"`
	StartsAt *string `json:"startsAt,omitempty"` // RFC 3339 with offset, likewise EndsAt
	EndsAt   *string `json:"endsAt,omitempty"`   // or EndsNow
	Paused   *bool   `json:"paused,omitempty"`
}

// change checks the patch. Its error names the first field that is wrong, and the limit.
func (p SalePatch) change(now time.Time) (SaleChange, error) {
	var c checker
	change := SaleChange{Name: p.Name, StartsAt: c.optionalInstant("startsAt", p.StartsAt), Paused: p.Paused}
	if p.EndsAt != nil && *p.EndsAt == EndsNow {
		now = now.UTC().Truncate(time.Millisecond)
		change.EndsAt = &now
	} else {
		change.EndsAt = c.optionalInstant("endsAt", p.EndsAt)
	}
	if p.Name != nil {
		c.label("name", *p.Name, MaxName)
	}
	if c.err == nil && change.StartsAt != nil && change.EndsAt != nil && !change.EndsAt.After(*change.StartsAt) {
		c.fail("endsAt", "must be later than startsAt")
	}
	return change, c.err
}

// names are the members that the patch has, for the log: their values may be what people wrote.
func (p SalePatch) names() []string {
	return given(member{"name", p.Name != nil}, member{"startsAt", p.StartsAt != nil}, member{"endsAt", p.EndsAt != nil}, member{"paused", p.Paused != nil})
}

// ItemPatch is what is to change of an item, as it is sent. Nil leaves a value as it is.
type ItemPatch struct {
	Shards     *int64  `json:"shards,omitempty"`
	Quantity   *int64  `json:"quantity,omitempty"`
	Price      *string `json:"price,omitempty"`
	MaxPerUser *int64  `json:"maxPerUser,omitempty"`
	Paused     *bool   `json:"paused,omitempty"`
}

// change checks the patch. Its error names the first field that is wrong, and the limit.
func (p ItemPatch) change() (ItemChange, error) {
	var c checker
	change := ItemChange{Quantity: p.Quantity, MaxPerUser: p.MaxPerUser, Paused: p.Paused}
	for _, n := range []struct {
		field       string
		value       *int64
		least, most int64
	}{
		{"shards", p.Shards, 1, sale.MaxShards},
		{"quantity", p.Quantity, 0, sale.MaxQuantity},
		{"maxPerUser", p.MaxPerUser, 1, MaxPerUser},
	} {
		if n.value != nil {
			c.number(n.field, n.value, -1, n.least, n.most)
		}
	}
	if p.Shards != nil && c.err == nil {
		shards := int(*p.Shards)
		change.Shards = &shards
	}
	if p.Price != nil {
		price := c.price("price", p.Price)
		change.Price = &price
	}
	return change, c.err
}

func (p ItemPatch) names() []string {
	return given(member{"shards", p.Shards != nil}, member{"quantity", p.Quantity != nil}, member{"price", p.Price != nil}, member{"maxPerUser", p.MaxPerUser != nil}, member{"paused", p.Paused != nil})
}

type member struct {
	name  string
	given bool
}

func given(members ...member) []string {
	members = slices.DeleteFunc(members, func(m member) bool { return !m.given })
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.name
	}
	return names
}

// optionalInstant reads a time that may be left out.
func (c *checker) optionalInstant(field string, text *string) *time.Time {
	if text == nil {
		return nil
	}
	t := c.instant(field, text)
	return &t
}

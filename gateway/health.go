package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Check says why this gateway should get no requests, or nil: it is draining, or its catalogue is missing or old. Whether its neighbours are there is
// not its to say. It does not block.
func (g *Gateway) Check(context.Context) error {
	if g.draining.Load() {
		return errors.New("the gateway is draining")
	}
	age, ok := g.catalogueAge()
	switch {
	case !ok:
		return errors.New("the catalogue has not been read yet")
	case age > g.cfg.CatalogueStale:
		return fmt.Errorf("the catalogue is %v old", age.Round(time.Second))
	}
	return nil
}

// ready is the answer of the public probe, which decides whether shoppers are sent here. An old catalogue is not a reason against it: it comes of a
// database that is away from all gateways at once, and units are sold without it.
func (g *Gateway) ready() bool {
	_, known := g.catalogueAge()
	return known && !g.draining.Load() && g.ports.Ready(g.base) && !g.draining.Load()
}

// SoldOut reports whether this gateway answers "sold out" for an item without asking anybody.
func (g *Gateway) SoldOut(item int64) bool {
	e := g.entryOf(item)
	if e == nil {
		return false
	}
	_, soldOut := e.state.flag.soldOut(g.cfg.Now())
	return soldOut
}

// flagged counts the flags that are set.
func (g *Gateway) flagged() int {
	n := 0
	for _, e := range g.entries() {
		if e.state.flag.isSet() {
			n++
		}
	}
	return n
}

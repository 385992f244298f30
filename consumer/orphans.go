package consumer

import (
	"context"
	"slices"

	"flashgate/internal/broker"
)

// orphans are the partitions that no member of the group had when it was last looked at.
type orphans struct{ seen []int32 }

// look has the group share out its partitions anew when some of them have belonged to nobody for two looks in a row.
//
// That is what can become of a static member. A partition changes hands in two rebalances: in the first, member B is told to give it up; B stops
// reading it and joins again, and in the second it is given to C. When B is killed between the two and comes back under its id, the group hands it
// what the first one had left it, without a second one: it takes B for settled, C waits for nothing, and the partition is read by nobody until
// something else moves the group. In a sound group the two follow each other within the batch in hand, so that hardly any look meets one in between;
// if one does, the group shares out once more, which changes nothing.
func (o *orphans) look(ctx context.Context, s *session, admin *broker.Admin) {
	ctx, cancel := context.WithTimeout(ctx, lagEvery)
	defer cancel()
	now, err := admin.Unowned(ctx, s.cfg.Broker.Group, broker.Orders)
	if err != nil {
		o.seen = nil
		s.cfg.Logger.Debug("cannot look for partitions without an owner", "error", err)
		return
	}
	still := slices.DeleteFunc(slices.Clone(now), func(p int32) bool { return !slices.Contains(o.seen, p) })
	o.seen = now
	if len(still) == 0 {
		return
	}
	o.seen = nil // the next two looks see what has become of it
	s.cfg.Logger.Warn("partitions belong to no order writer; the group shares them out anew", "partitions", still)
	s.client.ForceRebalance()
}

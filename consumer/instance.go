package consumer

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leaveAsInstance takes a static member out of the group: the client only stops to speak for it, so that it may come back, and its partitions would
// wait for the end of the session.
//
// The request names the member as well as its instance. Another process with the same id may have taken its place, noticed or not; by the instance
// alone, that one would be put out of the group.
func (s *session) leaveAsInstance(ctx context.Context) error {
	member, _ := s.client.GroupMetadata()
	if member == "" || s.health.isFenced() {
		return nil // there is nothing of ours in the group
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = s.cfg.Broker.Group, member
	leaving := kmsg.NewLeaveGroupRequestMember()
	leaving.MemberID, leaving.InstanceID = member, kmsg.StringPtr(s.cfg.InstanceID)
	leaving.Reason = kmsg.StringPtr("the order writer stops")
	req.Members = append(req.Members, leaving)
	response, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(response.ErrorCode); err != nil {
		return notOurs(err)
	}
	for _, answer := range response.Members {
		if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
			return notOurs(err)
		}
	}
	return nil
}

// notOurs returns nil when the group does not have the member any more: its session has ended, the client has left by itself between two rebalances,
// or another process has its place.
func notOurs(err error) error {
	if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.FencedInstanceID) {
		return nil
	}
	return err
}

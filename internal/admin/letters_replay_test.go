package admin_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"flashgate/internal/admin"
	"flashgate/internal/sale"
)

func TestReplayOfDeadLetters(t *testing.T) {
	w := newWorld()
	api := w.api(t)
	if got := do(api, "POST", "/admin/dlq/replay", ""); got.status != 200 || got.body != `{"dryRun":false,"replayed":[],"kept":[],"closed":[],"nextCursor":null}`+"\n" {
		t.Errorf("nothing to do: %d %s", got.status, got.body)
	}
	id := sale.NewOrderID(1001)
	w.desk.replay = func(admin.Replay) (admin.Replayed, error) {
		return admin.Replayed{
			Replayed: []admin.ReplayedLetter{{LetterPlace: admin.LetterPlace{Partition: 1, Offset: 7}, OrderID: id, Reason: "refused"}},
			Kept: []admin.KeptLetter{
				{LetterPlace: admin.LetterPlace{Partition: 2}, Reason: "malformed", Error: "JSON ends too early"},
				{LetterPlace: admin.LetterPlace{Partition: 2, Offset: 1}, OrderID: id, Reason: "invalid", Error: "quantity: 0"},
			},
			Next: "1-8_1-9",
		}, nil
	}
	for body, want := range map[string]struct {
		dry   bool
		asked admin.Replay
	}{
		``:                                   {false, admin.Replay{Asked: []byte(`{}`)}},
		`{}`:                                 {false, admin.Replay{Asked: []byte(`{}`)}},
		`{"dryRun":true,"reason":"refused"}`: {true, admin.Replay{DryRun: true, Reason: "refused", Asked: []byte(`{"reason":"refused"}`)}},
		`{"dryRun":false,"partition":0,"offset":17}`: {false, admin.Replay{One: &admin.LetterPlace{Offset: 17}, Asked: []byte(`{"partition":0,"offset":17}`)}},
		`{"cursor":"1-8_1-9"}`:                       {false, admin.Replay{Cursor: "1-8_1-9", Asked: []byte(`{}`)}},
	} {
		w.replays = nil
		got := do(api, "POST", "/admin/dlq/replay", body)
		view := fmt.Sprintf(`{"dryRun":%v,"replayed":[{"partition":1,"offset":7,"orderId":"%s","reason":"refused"}],`+
			`"kept":[{"partition":2,"offset":0,"orderId":null,"reason":"malformed","error":"JSON ends too early"},`+
			`{"partition":2,"offset":1,"orderId":"%s","reason":"invalid","error":"quantity: 0"}],"closed":[],"nextCursor":"1-8_1-9"}`+"\n", want.dry, id, id)
		if got.status != 200 || got.body != view {
			t.Errorf("%s: %d %s, want %s", body, got.status, got.body, view)
		}
		if len(w.replays) != 1 || show(w.replays[0]) != show(want.asked) {
			t.Errorf("%s: asked for %v, want %v", body, w.replays, want.asked)
		}
	}
}

func show(r admin.Replay) string {
	one := "any"
	if r.One != nil {
		one = fmt.Sprint(*r.One)
	}
	return fmt.Sprintf("%v %s %q %q %s", r.DryRun, one, r.Reason, r.Cursor, r.Asked)
}

func TestReplaysThatMakeNoSense(t *testing.T) {
	w := newWorld()
	api := w.api(t)
	for body, message := range map[string]string{
		`[]`:                                  `the body: `,
		`{"dryrun":true}`:                     `dryrun`,
		`{"partitions":1}`:                    `partitions`,
		`{"dryRun":1}`:                        `dryRun`,
		`{"partition":1}`:                     `offset: is missing`,
		`{"offset":1}`:                        `partition: is missing`,
		`{"partition":-1,"offset":1}`:         `partition: must be an integer from 0 to 2147483647`,
		`{"partition":1,"offset":-1}`:         `offset: must be an integer from 0 to 9007199254740991`,
		`{"partition":2147483648,"offset":1}`: `partition: must be an integer from 0 to 2147483647`,
		`{"partition":1,"offset":9007199254740992}`:     `offset: must be an integer from 0 to 9007199254740991`,
		`{"partition":1.5,"offset":1}`:                  `partition`,
		`{"reason":""}`:                                 `reason: must be a text of 1 to 64 characters`,
		`{"reason":"` + strings.Repeat("x", 65) + `"}`:  `reason: must be a text of 1 to 64 characters`,
		`{"cursor":""}`:                                 `cursor: is not one that an answer gave`,
		`{"cursor":"0-1_0-2","partition":0,"offset":1}`: `cursor: is not one that an answer gave`,
	} {
		got := do(api, "POST", "/admin/dlq/replay", body)
		if got.status != 400 || !strings.Contains(got.body, message) {
			t.Errorf("%s: %d %s, want %s", body, got.status, got.body, message)
		}
	}
	if len(w.replays) > 0 {
		t.Errorf("replays of %v", w.replays)
	}
	refused(t, "a parameter", do(api, "POST", "/admin/dlq/replay?dryRun=true", ""), 400, "BAD_REQUEST", `"dryRun": is not a parameter of this path`)
}

func TestReplaysThatFail(t *testing.T) {
	w := newWorld()
	api := w.api(t)
	for _, test := range []struct {
		err     error
		status  int
		code    string
		message string
	}{
		{admin.ErrNoLetter, 404, "NOT_FOUND", "there is no dead letter at partition 3 offset 17"},
		{errors.Join(admin.ErrBadCursor, errAway), 400, "BAD_REQUEST", "cursor: is not one that an answer gave"},
		{errAway, 503, "UNAVAILABLE", "Kafka or the database does not answer, or the dead letters cannot be read; nothing was replayed"},
		{&admin.ReplayError{Done: 5, Err: errAway}, 503, "UNAVAILABLE", "Kafka or the database does not answer; 5 letters were replayed"},
		{
			&admin.ReplayError{Done: 5, Unsure: 2, Err: errAway}, 503, "UNAVAILABLE",
			"Kafka or the database does not answer; 5 letters were replayed, of 2 it is unknown; to replay them once more does no harm",
		},
	} {
		w.desk.replay = func(admin.Replay) (admin.Replayed, error) {
			return admin.Replayed{}, fmt.Errorf("replay: %w", test.err)
		}
		refused(t, test.message, do(api, "POST", "/admin/dlq/replay", `{"partition":3,"offset":17}`), test.status, test.code, test.message)
	}
}

func TestClientReplaysDeadLetters(t *testing.T) {
	w := newWorld()
	w.desk.replay = func(wish admin.Replay) (admin.Replayed, error) {
		if wish.Cursor == "" {
			return admin.Replayed{Next: "_0-1"}, nil
		}
		return admin.Replayed{}, admin.ErrBadCursor
	}
	client := serve(t, w.api(t))
	got, err := client.ReplayDeadLetters(t.Context(), admin.ReplayInput{DryRun: given(true), Partition: given[int64](3), Offset: given[int64](0), Reason: given("x")})
	if err != nil || !got.Value.DryRun || *got.Value.NextCursor != "_0-1" || show(w.replays[0]) != `true {3 0} "x" "" {"partition":3,"offset":0,"reason":"x"}` {
		t.Errorf("%s, %v; asked for %s", got.JSON, err, show(w.replays[0]))
	}
	var refusal *admin.Refusal
	if _, err := client.ReplayDeadLetters(t.Context(), admin.ReplayInput{Cursor: given("x")}); !errors.As(err, &refusal) || refusal.Status != 400 {
		t.Errorf("a bad cursor: %v", err)
	}
}

// TestReplaysThatFindNothing says why: the letter is closed, or the reason is none that any letter has.
func TestReplaysThatFindNothing(t *testing.T) {
	w := newWorld()
	w.closed = map[admin.LetterPlace]time.Time{{Partition: 3, Offset: 17}: someTime}
	api := w.api(t)
	const none = `{"dryRun":false,"replayed":[],"kept":[],"closed":[],"nextCursor":null}` + "\n"
	for body, want := range map[string]string{
		`{"partition":3,"offset":17}`:                    `{"dryRun":false,"replayed":[],"kept":[],"closed":[{"partition":3,"offset":17,"at":"2026-11-27T12:30:00.250Z"}],"nextCursor":null}` + "\n",
		`{"partition":3,"offset":18,"reason":"refused"}`: none, // it is there for another reason
		`{"reason":"refused"}`:                           none,
		`{"reason":"nonsense","cursor":"0-1_0-2"}`:       none, // earlier calls may have found some
	} {
		if got := do(api, "POST", "/admin/dlq/replay", body); got.status != 200 || got.body != want {
			t.Errorf("%s: %d %s, want %s", body, got.status, got.body, want)
		}
	}
	refused(t, "a reason", do(api, "POST", "/admin/dlq/replay", `{"reason":"nonsense"}`), 400, "BAD_REQUEST",
		"reason: must be one of malformed, refused, or another that a letter has")
	w.databaseDown = true
	refused(t, "nobody knows", do(api, "POST", "/admin/dlq/replay", `{"partition":3,"offset":17}`), 503, "UNAVAILABLE",
		"Kafka or the database does not answer, or the dead letters cannot be read; nothing was replayed")
	w.desk.replay = func(admin.Replay) (admin.Replayed, error) { return admin.Replayed{Next: "_0-1"}, nil }
	if got := do(api, "POST", "/admin/dlq/replay", `{"reason":"nonsense"}`); got.status != 200 {
		t.Errorf("letters that were not looked at may have it: %d %s", got.status, got.body)
	}
}

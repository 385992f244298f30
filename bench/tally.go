package bench

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/valyala/fasthttp"

	"flashgate/internal/sale"
)

// The longest answer that the histogram holds, in microseconds; what is longer counts as this.
const longest = int64(5 * time.Minute / time.Microsecond)

// tally counts the answers of one worker. It is not safe for concurrent use.
type tally struct {
	answers  map[string]int64 // by "status CODE"
	times    *hdrhistogram.Histogram
	accepted []sale.OrderID
}

func newTally() *tally {
	return &tally{answers: map[string]int64{}, times: hdrhistogram.New(1, longest, 3)}
}

// answer says whether a shopper should ask again, and after what wait.
type answer struct {
	again bool
	after time.Duration
}

// record counts one answer, or the error in place of one.
func (t *tally) record(response *fasthttp.Response, err error, took time.Duration) answer {
	_ = t.times.RecordValue(min(max(took.Microseconds(), 1), longest))
	if err != nil {
		t.answers[connectionFault(err)]++
		return answer{again: true, after: 200 * time.Millisecond}
	}
	status := response.StatusCode()
	var body struct {
		Error   string       `json:"error"`
		OrderID sale.OrderID `json:"orderId"`
		Status  string       `json:"status"`
	}
	if json.Unmarshal(response.Body(), &body) != nil {
		t.answers["not JSON, status "+strconv.Itoa(status)]++
		return answer{}
	}
	code := body.Error
	if status == fasthttp.StatusAccepted {
		code = body.Status
		t.accepted = append(t.accepted, body.OrderID)
	}
	t.answers[strconv.Itoa(status)+" "+code]++
	if status != fasthttp.StatusTooManyRequests && status != fasthttp.StatusServiceUnavailable {
		return answer{}
	}
	seconds, err := strconv.Atoi(string(response.Header.Peek(fasthttp.HeaderRetryAfter)))
	if err != nil || seconds < 0 {
		seconds = 1
	}
	return answer{again: true, after: time.Duration(min(seconds, 10)) * time.Second}
}

func connectionFault(err error) string {
	switch {
	case errors.Is(err, fasthttp.ErrTimeout):
		return "no answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, fasthttp.ErrConnectionClosed):
		return "connection closed"
	}
	return "no connection"
}

func merge(tallies []*tally) *tally {
	all := newTally()
	for _, t := range tallies {
		for name, n := range t.answers {
			all.answers[name] += n
		}
		all.times.Merge(t.times)
		all.accepted = append(all.accepted, t.accepted...)
	}
	return all
}

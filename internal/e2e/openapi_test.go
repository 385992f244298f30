package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashgate/internal/apidoc"
)

var seed = flag.Uint64("seed", 20261127, "of the requests that are made out of docs/openapi.yaml")

// How many requests of each operation are made: such that fit, and such that were spoiled. What is the work of many needs fewer.
const (
	fitting, spoiled = 120, 240
	askingAtOnce     = 6
)

var fewer = map[string][2]int{"createSale": {40, 240}, "changeItem": {40, 240}, "restockItem": {40, 240}, "reloadItem": {6, 60}, "metrics": {10, 60}}

// beyondSchemas are the refusals of requests that fit the document: rules about several values at once, about what exists, or about spelling, which a
// schema cannot say. Each of them is in the document in words.
var beyondSchemas = map[string]string{
	`^body: quantity: must be (1|between 1 and \d+)$`:     "the limit is the item's",
	`^quantity: the item would have more than \d+ units$`: "the sum counts",
	`^(id|item|itemId|item id|cursor): `:                  "an integer of a schema may be written with a sign, an exponent or zeros in front",
	`^limit: must be an integer from 1 to 100$`:           "likewise",
	`^order id: `: "likewise",
	`^(items\[\d+\]\.)?price: must have at most \d decimals`:        "the currency counts",
	`^(endsAt: must be later than|startsAt: must be earlier than) `: "the two times count together",
	`^(starts|ends)At: must be a time with offset`:                  "a pattern lets 30 February pass",
	`^paymentWindow: must be a duration`:                            "a pattern does not add up",
	`^timeZone: must be the IANA name`:                              "the list is long",
	`^(name|items\[\d+\]\.sku): must be at most \d+ bytes`:          "schemas count letters",
	`^items\[\d+\]\.id: is the id of items\[\d+\], too$`:            "within one body",
	`: must be an integer without fraction or exponent$`:            "for a schema 1.0 is 1",
	`: comes twice$`: "no schema sees that",
	`^body: .*(is not JSON|follows|ends too early|must be a JSON)`: "what is no JSON is read in other ways by the validator",
	`^the body: `:               "likewise",
	`^the query cannot be read`: "likewise",
	`^(body: )?(holds half of a surrogate pair|is not UTF-8)$`:       "likewise",
	`^(body: )?[^ ]+: is an integer that does not fit 64 bits$`:      "likewise",
	`^"[^"]*": is not a parameter of this path$`:                     "schemas do not name what there is not",
	`^(body: )?.*: (is nested deeper than \d+ levels|is not known)`:  "likewise",
	`^trailers are not accepted$`:                                    "no schema has trailers",
	`^Idempotency-Key: must be given once, as 1 to 128 visible ASCI`: "a header that is there and empty",
	`^Idempotency-Key: must be one header of 1 to 128 visible ASCII`: "likewise",
}

// generated sends requests that are made out of the document, such that fit it and such that do not. No answer may be one that the document does not
// have, none may say that something broke inside, nothing that does not fit may be taken, and what fits is refused for one of the rules above at most.
func (w *world) generated(t *testing.T) {
	t.Logf("seed %d", *seed)
	defer func(tb testing.TB) { w.tb = tb }(w.tb)
	w.tb = t
	pools := map[string][]string{
		"itemId": {"101", "102", "103", "109", "110", "112", "120", "9"}, "item": {"101", "109"}, "saleId": {"104", "110", "120", "9"},
		"orderId":       {w.names["first"], w.names["third"], w.names["paid"], w.names["twice"], w.names["late"], w.names["ghost"]},
		"paymentWindow": {"10m", "90s"}, "timeZone": {"UTC", "Asia/Tokyo"}, "amount": {"1980", "3960"}, "currency": {"JPY"}, "eventId": {"e1", "e2", "e3", "g1", "g2"},
		"subject": {"item:110", "sale:110", "order:" + w.names["twice"]},
	}
	generator := apidoc.NewGenerator(w.document, *seed, pools, map[string]int64{"shards": 8})
	tokens := map[bool][]string{true: {adminToken}}
	for i := range 40 {
		tokens[false] = append(tokens[false], tokenOf(t, "generated-"+itoa(int64(i))))
	}
	var rules []*regexp.Regexp
	for rule := range beyondSchemas {
		rules = append(rules, regexp.MustCompile(rule))
	}
	for _, o := range w.document.Operations() {
		var made []apidoc.Made
		numbers, ok := fewer[o.ID()]
		if !ok {
			numbers = [2]int{fitting, spoiled}
		}
		for range numbers[0] {
			made = append(made, generator.Fitting(o))
		}
		for range numbers[1] {
			made = append(made, generator.Spoiled(o))
		}
		if taken := w.sendAll(t, made, tokens, rules); taken == 0 && o.Succeeds() {
			t.Errorf("seed %d: none of %d requests %v succeeded, so nothing was tried", *seed, len(made), o)
		}
	}
	if output := w.at[""].output.String(); strings.Contains(output, "panic") {
		t.Errorf("the gateway has panicked:\n%s", tail(output, 40))
	}
	w.play(t, []row{
		newSale("after all this", 190, "{before}", "{after}", `"quantity":1`),
		buys("as if nothing had been", 190, "1", "", 202, "", row{}),
	})
	if sold, available := w.settled(190); sold != 1 || available != 0 {
		t.Errorf("after all this: sold %d, free %d, want 1 and 0", sold, available)
	}
	w.settled(102)
}

// sendAll sends requests, several at once, judges the answers, and counts the successes.
func (w *world) sendAll(t *testing.T, made []apidoc.Made, tokens map[bool][]string, rules []*regexp.Regexp) int64 {
	var taken atomic.Int64
	next := make(chan int)
	var workers sync.WaitGroup
	for range askingAtOnce {
		workers.Go(func() {
			for i := range next {
				m := made[i]
				switch list := tokens[m.Admin]; {
				case i%20 == 19: // nobody
				case m.Operation.ID() == "recordPayment":
					m.Header.Set("Flashgate-Signature", signature(time.Now(), paymentSecret, m.Body))
				default:
					m.Header.Set("Authorization", "Bearer "+list[i%len(list)])
				}
				status, faults := w.judge(t, m, rules)
				if status < 300 {
					taken.Add(1)
				}
				for _, fault := range faults {
					t.Errorf("seed %d, %v, %s: %s\n  %s %s %v %.300s", *seed, m.Operation, m.How, fault, m.Method, m.Target, visible(m.Header), m.Body)
				}
			}
		})
	}
	for i := range made {
		next <- i
	}
	close(next)
	workers.Wait()
	return taken.Load()
}

// visible leaves out what is long and says nothing.
func visible(header http.Header) http.Header {
	header = header.Clone()
	header.Del("Authorization")
	return header
}

func (w *world) judge(t *testing.T, m apidoc.Made, rules []*regexp.Regexp) (status int, faults []string) {
	t.Helper()
	answer, err := w.send(t, w.at[""], m.Request)
	if err != nil {
		return http.StatusServiceUnavailable, []string{err.Error()}
	}
	verdict := w.document.Check(t.Context(), m.Request, answer)
	faults = verdict.Problems
	got := decoded(answer)
	switch {
	case m.Malformed && answer.Status < 300:
		faults = append(faults, fmt.Sprintf("malformed, and answered with %d %s", answer.Status, answer.Body))
	case answer.Status == http.StatusInternalServerError:
		faults = append(faults, "something broke inside")
	case m.Method != http.MethodHead && answer.Status == http.StatusBadRequest && verdict.Case.Operation != "" && verdict.Misfit == nil:
		message, _ := got.body["message"].(string)
		known := false
		for _, rule := range rules {
			known = known || rule.MatchString(message)
		}
		if !known {
			faults = append(faults, "fits the document and is refused: "+message)
		}
	}
	return answer.Status, faults
}

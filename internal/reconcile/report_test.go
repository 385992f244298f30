package reconcile

import (
	"testing"

	"flashgate/internal/sale"
)

// TestWhatReadingsAgreeAbout has the drifts of several readings of one item.
func TestWhatReadingsAgreeAbout(t *testing.T) {
	for _, test := range []struct {
		name   string
		drifts []int64
		drift  int64
		known  bool
	}{
		{"all adds up once", []int64{0}, 0, true},
		{"and then not", []int64{0, 3, 3, 3}, 0, true},
		{"too few", []int64{3, 3}, 0, false},
		{"enough", []int64{3, 3, 3}, 3, true},
		{"too many units", []int64{-2, -2, -2, -2}, -2, true},
		{"it moves", []int64{3, 2, 3, 3}, 0, false},
		{"to and fro", []int64{1, -1, 1}, 0, false},
	} {
		var streak []*reading
		for _, d := range test.drifts {
			streak = append(streak, &reading{item: sale.Item{Quantity: 10}, free: 10 - d})
		}
		drift, known := judge(streak, nil)
		if known != test.known || known && drift != test.drift {
			t.Errorf("%s: %d, %v", test.name, drift, known)
		}
	}
}

// TestSurplusThatIsUnderWay counts units twice as long as a transfer or a restock has not been finished, and no longer.
func TestSurplusThatIsUnderWay(t *testing.T) {
	for _, test := range []struct {
		name                       string
		free, moving, owed         int64
		drift, shownMoving, sumsTo int64
	}{
		{"given, not settled", 10, 4, 0, 0, 0, 0},
		{"on its way", 6, 4, 0, 0, 4, 0},
		{"added, not forgotten", 10, 0, 3, 0, 0, 0},
		{"waits to be added", 7, 0, 3, 0, 3, 0},
		{"more than that", 15, 4, 0, -5, 0, -5},
		{"lost", 3, 4, 0, 3, 4, 3},
	} {
		r := &reading{item: sale.Item{Quantity: 10}, free: test.free, moving: test.moving, owed: test.owed}
		free, inFlight, moving, drift := numbers(r, nil)
		if drift != test.drift || moving != test.shownMoving || 10-free-inFlight-moving != test.sumsTo {
			t.Errorf("%s: free %d, in flight %d, moving %d, drift %d", test.name, free, inFlight, moving, drift)
		}
	}
}

// TestSoldBehindTheReading takes rows that have no mark for units that were free when Redis was read, unless they never get one.
func TestSoldBehindTheReading(t *testing.T) {
	a, b := sale.NewOrderID(1), sale.NewOrderID(1)
	later, lasting := Concern{a, MarkMissing, 2}, Concern{b, MarkMissing, 1}
	first := &reading{item: sale.Item{Quantity: 10, Sold: 3}, free: 9, concerns: map[sale.OrderID]Concern{a: later, b: lasting}}
	second := &reading{item: sale.Item{Quantity: 10, Sold: 3}, free: 7, held: 2, heldLive: 2, concerns: map[sale.OrderID]Concern{b: lasting}}
	streak := []*reading{first, second}
	of := lastingConcerns(streak)
	if len(of) != 1 || of[b] != lasting {
		t.Fatalf("lasting: %v", of)
	}
	for _, r := range streak {
		if free, inFlight, moving, drift := numbers(r, of); free != 7 || inFlight != 0 || moving != 0 || drift != 0 {
			t.Errorf("free %d, in flight %d, moving %d, drift %d", free, inFlight, moving, drift)
		}
	}
}

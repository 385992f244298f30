package sale

import (
	"errors"
	"math/big"
	"strings"
)

// MaxEventID is the longest id of a payment event in bytes.
const MaxEventID = 128

// ErrBadEventID is returned for the id of a payment event that is empty, too long or holds anything but visible ASCII.
var ErrBadEventID = errors.New("must be 1 to 128 visible ASCII characters")

// CheckEventID returns ErrBadEventID unless id may be the id of a payment event.
func CheckEventID(id string) error {
	if len(id) < 1 || len(id) > MaxEventID {
		return ErrBadEventID
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return ErrBadEventID
		}
	}
	return nil
}

// Payment is what the payment provider says about one attempt to pay for an order.
type Payment struct {
	EventID   string // the provider's; the same event has the same id, however often it is told
	OrderID   OrderID
	Succeeded bool
	Amount    Amount // for the whole order
	Currency  string
}

// PaymentResult is the state of the order that is answered to the provider.
type PaymentResult struct {
	Status    OrderStatus
	RefundDue bool // money has come in that the order does not need
}

// Amount is an amount of money as the decimal text in which it was given: at most 20 digits before the point and 10 behind it, never negative.
// It is wider than a Price, because an order has many units and a provider may write more decimals than the shop.
type Amount string

// ErrBadAmount is returned for text that is no amount.
var ErrBadAmount = errors.New(`must be a decimal as text, such as "1980" or "19.80": at most 20 digits before the point and 10 behind it, no sign, no exponent`)

// ParseAmount checks text and returns it as an Amount.
func ParseAmount(text string) (Amount, error) {
	whole, fraction, point := strings.Cut(text, ".")
	if !digits(whole, 20) || (len(whole) > 1 && whole[0] == '0') || (point && !digits(fraction, 10)) {
		return "", ErrBadAmount
	}
	return Amount(text), nil
}

// Total is what an order of so many units costs: price × quantity, exactly. It is "" for a price that is none.
func Total(price Price, quantity int64) Amount {
	unit, ok := new(big.Rat).SetString(string(price))
	if !ok {
		return ""
	}
	_, fraction, _ := strings.Cut(string(price), ".")
	return Amount(unit.Mul(unit, new(big.Rat).SetInt64(quantity)).FloatString(len(fraction)))
}

// Equal reports whether two valid amounts are the same: "19.8" equals "19.80". An invalid amount equals nothing.
func (a Amount) Equal(b Amount) bool { return sameNumber(string(a), string(b)) }

// sameNumber compares decimals by value.
func sameNumber(a, b string) bool {
	x, okX := new(big.Rat).SetString(a)
	y, okY := new(big.Rat).SetString(b)
	return okX && okY && x.Cmp(y) == 0
}

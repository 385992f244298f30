package sale

import (
	"errors"
	"strings"
)

// Price is an amount of money as the decimal text in which it was given, such as "1980" or "19.80": at most 14 digits before the point and
// 4 behind it, never negative. The text is kept, so that a price leaves as it came; Equal compares values.
type Price string

// ErrBadPrice is returned for text that is no price.
var ErrBadPrice = errors.New(`must be a decimal such as "1980" or "19.80": at most 14 digits before the point and 4 behind it, no sign, no exponent`)

// ParsePrice checks text and returns it as a Price.
func ParsePrice(text string) (Price, error) {
	whole, fraction, point := strings.Cut(text, ".")
	if !digits(whole, 14) || (len(whole) > 1 && whole[0] == '0') || (point && !digits(fraction, 4)) {
		return "", ErrBadPrice
	}
	return Price(text), nil
}

// Equal reports whether two valid prices are the same amount: "19.8" equals "19.80". An invalid price equals nothing.
func (p Price) Equal(q Price) bool { return sameNumber(string(p), string(q)) }

// Decimals is how many digits behind the point the price needs: 1 for "19.80".
func (p Price) Decimals() int {
	_, fraction, _ := strings.Cut(string(p), ".")
	return len(strings.TrimRight(fraction, "0"))
}

// CurrencyDecimals is how many decimals amounts of a currency have: the exponent of its minor unit in ISO 4217. A code that is not listed here has two, as
// nearly all have. It is the list of the standard, and not the digits that CLDR gives: those are how amounts are shown, such as none for RSD.
func CurrencyDecimals(currency string) int {
	switch currency {
	case "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF":
		return 0
	case "BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND":
		return 3
	case "CLF", "UYW":
		return 4
	}
	return 2
}

func digits(s string, most int) bool {
	if len(s) < 1 || len(s) > most {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// ErrBadCurrency is returned for text that has not the form of an ISO 4217 code.
var ErrBadCurrency = errors.New(`must be three capital letters, such as "JPY" (ISO 4217)`)

// CheckCurrency returns ErrBadCurrency unless code is three capital letters.
func CheckCurrency(code string) error {
	if len(code) != 3 {
		return ErrBadCurrency
	}
	for i := range 3 {
		if code[i] < 'A' || code[i] > 'Z' {
			return ErrBadCurrency
		}
	}
	return nil
}

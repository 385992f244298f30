package admin

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // names of zones must mean the same on every machine, also in an image without any files
	"unicode"

	"flashgate/internal/sale"
)

// The limits of a sale.
const (
	// MaxItems bounds the items of one sale that are created at once. They are loaded before the answer.
	MaxItems = 500
	// MaxPerUser bounds what one order may hold.
	MaxPerUser = 10_000
	// MaxName and MaxSKU are in bytes.
	MaxName = 200
	MaxSKU  = 100
	// MinPaymentWindow and MaxPaymentWindow bound the time to pay. Overdue orders are looked for every few seconds, so that less has no meaning.
	MinPaymentWindow = time.Second
	MaxPaymentWindow = 30 * 24 * time.Hour
)

// The defaults of a sale.
const (
	DefaultPaymentWindow = 10 * time.Minute
	DefaultShards        = 13 // a prime, because ids made by generators share their low bits
	DefaultMaxPerUser    = 1
	DefaultTimeZone      = "UTC"
)

// saleInput is a sale as it is asked for. Pointers tell what was left out.
type saleInput struct {
	ID            *int64      `json:"id"`
	Name          string      `json:"name"`
	StartsAt      *string     `json:"startsAt"`
	EndsAt        *string     `json:"endsAt"`
	PurchaseLimit *string     `json:"purchaseLimit"`
	PaymentWindow *string     `json:"paymentWindow"`
	TimeZone      *string     `json:"timeZone"`
	Items         []itemInput `json:"items"`
}

// itemInput is an item as it is asked for.
type itemInput struct {
	ID          *int64  `json:"id"`
	ProductID   *int64  `json:"productId"`
	SKU         string  `json:"sku"`
	Quantity    *int64  `json:"quantity"`
	Price       *string `json:"price"`
	Currency    *string `json:"currency"`
	Shards      *int64  `json:"shards"`
	MaxPerUser  *int64  `json:"maxPerUser"`
	StockModel  *string `json:"stockModel"`
	Approval    bool    `json:"approval"`
	SafetyStock int64   `json:"safetyStock"`
}

// sale checks the input and fills in the defaults. Its error names the first field that is wrong, and the limit.
func (in saleInput) sale() (sale.Sale, error) {
	var c checker
	s := sale.Sale{
		ID:            c.optionalID("id", in.ID),
		Name:          c.label("name", in.Name, MaxName),
		StartsAt:      c.instant("startsAt", in.StartsAt),
		EndsAt:        c.instant("endsAt", in.EndsAt),
		PurchaseLimit: c.purchaseLimit(in.PurchaseLimit),
		PaymentWindow: c.paymentWindow(in.PaymentWindow),
		TimeZone:      c.timeZone(in.TimeZone),
	}
	if c.err == nil && !s.EndsAt.After(s.StartsAt) {
		c.fail("endsAt", "must be later than startsAt")
	}
	if n := len(in.Items); n < 1 || n > MaxItems {
		c.fail("items", fmt.Sprintf("must have 1 to %d items; it has %d", MaxItems, n))
	}
	seen := make(map[int64]int)
	for i, item := range in.Items {
		if c.err != nil {
			break
		}
		path := fmt.Sprintf("items[%d]", i)
		it := item.item(&c, path+".")
		if first, twice := seen[it.ID]; twice && it.ID != 0 {
			c.fail(path+".id", fmt.Sprintf("is the id of items[%d], too", first))
		}
		seen[it.ID] = i
		it.StartsAt, it.EndsAt, it.PurchaseLimit, it.PaymentWindow = s.StartsAt, s.EndsAt, s.PurchaseLimit, s.PaymentWindow
		s.Items = append(s.Items, it)
	}
	if c.err != nil {
		return sale.Sale{}, c.err
	}
	return s, nil
}

func (in itemInput) item(c *checker, path string) sale.Item {
	it := sale.Item{
		ID:         c.optionalID(path+"id", in.ID),
		ProductID:  c.optionalID(path+"productId", in.ProductID),
		SKU:        c.label(path+"sku", in.SKU, MaxSKU),
		Quantity:   c.number(path+"quantity", in.Quantity, -1, 0, sale.MaxQuantity),
		Price:      c.price(path+"price", in.Price),
		Currency:   c.currency(path+"currency", in.Currency),
		Shards:     int(c.number(path+"shards", in.Shards, DefaultShards, 1, sale.MaxShards)),
		MaxPerUser: c.number(path+"maxPerUser", in.MaxPerUser, DefaultMaxPerUser, 1, MaxPerUser),
		Model:      c.stockModel(path+"stockModel", in.StockModel),
	}
	if in.Approval {
		c.fail(path+"approval", "orders that wait for approval are not built in this version; leave it out or false")
	}
	if in.SafetyStock != 0 {
		c.fail(path+"safetyStock", "a safety stock belongs to the stock model lots, which is not built in this version; leave it out or 0")
	}
	return it
}

// checker collects the first problem. Its methods return the checked value, or any after a problem.
type checker struct{ err error }

func (c *checker) fail(field, problem string) {
	if c.err == nil {
		c.err = badRequest(field + ": " + problem)
	}
}

// optionalID reads an id that is filled in where it is absent.
func (c *checker) optionalID(field string, id *int64) int64 {
	if id == nil {
		return 0
	}
	return c.number(field, id, -1, 1, sale.MaxID)
}

// number reads an integer; absent is its default, none when that is negative.
func (c *checker) number(field string, n *int64, absent, least, most int64) int64 {
	switch {
	case n == nil && absent < 0:
		c.fail(field, "is missing")
		return 0
	case n == nil:
		return absent
	case *n < least || *n > most:
		c.fail(field, fmt.Sprintf("must be an integer from %d to %d", least, most))
	}
	return *n
}

// label reads a text for people. An empty one is fine.
func (c *checker) label(field, text string, most int) string {
	if len(text) > most || strings.ContainsFunc(text, unicode.IsControl) {
		c.fail(field, fmt.Sprintf("must be at most %d bytes long, without control characters", most))
	}
	return text
}

// instant reads a time. Without an offset nobody knows when it is, so it must have one.
func (c *checker) instant(field string, text *string) time.Time {
	if text == nil {
		c.fail(field, "is missing")
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, *text)
	if err != nil || !rfc3339.MatchString(*text) {
		c.fail(field, `must be a time with offset (RFC 3339), such as "2026-11-27T20:00:00+08:00" or "2026-11-27T12:00:00Z"`)
		return time.Time{}
	}
	t = t.UTC().Truncate(time.Millisecond) // the precision of answers: what was stored is what is shown
	if t.Year() < 2000 || t.Year() > 9999 {
		c.fail(field, "must be between the years 2000 and 9999")
	}
	return t
}

// rfc3339 is the form of a time. time.Parse also takes an hour of one digit, a comma, and offsets of a day and more.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

func (c *checker) paymentWindow(text *string) time.Duration {
	if text == nil {
		return DefaultPaymentWindow
	}
	d, err := time.ParseDuration(*text)
	// PostgreSQL keeps microseconds.
	if err != nil || d < MinPaymentWindow || d > MaxPaymentWindow || d%time.Microsecond != 0 {
		c.fail("paymentWindow", fmt.Sprintf(`must be a duration with unit, such as "10m", from %s to %s`,
			formatDuration(MinPaymentWindow), formatDuration(MaxPaymentWindow)))
	}
	return d
}

func (c *checker) timeZone(name *string) string {
	if name == nil {
		return DefaultTimeZone
	}
	// LoadLocation reads "" as UTC and "Local" as whatever this machine is set to.
	if _, err := time.LoadLocation(*name); err != nil || *name == "" || *name == "Local" {
		c.fail("timeZone", `must be the IANA name of a zone, such as "Asia/Tokyo"`)
	}
	return *name
}

func (c *checker) purchaseLimit(text *string) sale.PurchaseLimit {
	switch {
	case text == nil || *text == string(sale.PerItem):
	case *text == string(sale.PerSale):
		c.fail("purchaseLimit", "per_sale is not built in this version; only per_item is")
	default:
		c.fail("purchaseLimit", "must be per_item or per_sale")
	}
	return sale.PerItem
}

func (c *checker) stockModel(field string, text *string) sale.StockModel {
	switch {
	case text == nil || *text == string(sale.Counter):
	case *text == string(sale.Lots) || *text == string(sale.Direct):
		c.fail(field, *text+" is not built in this version; only counter is")
	default:
		c.fail(field, "must be counter, lots or direct")
	}
	return sale.Counter
}

func (c *checker) price(field string, text *string) sale.Price {
	if text == nil {
		c.fail(field, "is missing")
		return ""
	}
	price, err := sale.ParsePrice(*text)
	if err != nil {
		c.fail(field, err.Error())
	}
	return price
}

func (c *checker) currency(field string, text *string) string {
	if text == nil {
		c.fail(field, "is missing")
		return ""
	}
	if err := sale.CheckCurrency(*text); err != nil {
		c.fail(field, err.Error())
	}
	return *text
}

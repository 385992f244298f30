package admin

import (
	"strings"
	"time"

	"flashgate/internal/sale"
)

// SaleView is a sale as the API answers it.
type SaleView struct {
	ID            int64          `json:"id"`
	Name          string         `json:"name"`
	StartsAt      Time           `json:"startsAt"`
	EndsAt        Time           `json:"endsAt"`
	Paused        bool           `json:"paused"`
	PurchaseLimit string         `json:"purchaseLimit"`
	PaymentWindow string         `json:"paymentWindow"` // as time.ParseDuration reads it
	TimeZone      string         `json:"timeZone"`
	Items         []SaleItemView `json:"items"`
}

// SaleItemView is an item within its sale.
type SaleItemView struct {
	ID         int64  `json:"id"`
	ProductID  int64  `json:"productId"` // 0: none was given
	SKU        string `json:"sku"`
	Quantity   int64  `json:"quantity"`
	Sold       int64  `json:"sold"`
	Price      string `json:"price"`
	Currency   string `json:"currency"`
	Shards     int    `json:"shards"`
	MaxPerUser int64  `json:"maxPerUser"`
	StockModel string `json:"stockModel"`
	Paused     bool   `json:"paused"`
	Retired    bool   `json:"retired"`
}

// CreatedView is the answer to the creation of a sale. Pending and Message are there when its stock is not loaded yet.
type CreatedView struct {
	SaleView
	Pending bool   `json:"pending,omitempty"`
	Message string `json:"message,omitempty"`
}

// SalesView is one page of sales.
type SalesView struct {
	Sales      []SaleView `json:"sales"`
	NextCursor *string    `json:"nextCursor"` // null: that was the last page
}

// ItemView is an item with the numbers of the database and of Redis, in units. Null is what is unknown.
type ItemView struct {
	ID         int64       `json:"id"`
	SaleID     int64       `json:"saleId"`
	Price      string      `json:"price"`
	Currency   string      `json:"currency"`
	MaxPerUser int64       `json:"maxPerUser"`
	Paused     bool        `json:"paused"` // the item's own pause; its sale has another
	Retired    bool        `json:"retired"`
	Quantity   int64       `json:"quantity"`
	Sold       int64       `json:"sold"`
	Available  *int64      `json:"available"`
	Pending    *int64      `json:"pending"`
	InTransfer *int64      `json:"inTransfer"`
	Drift      *int64      `json:"drift"`
	Epoch      int64       `json:"epoch"`
	SoldOut    *bool       `json:"soldOut"`
	Shards     []ShardView `json:"shards"`
}

// ShardView is one shard of an item. Buyers is the number of its marks.
type ShardView struct {
	Shard   int    `json:"shard"`
	Stock   *int64 `json:"stock"`
	Buyers  *int64 `json:"buyers"`
	Pending *int64 `json:"pending"`
}

// RestockView is the answer to a restock.
type RestockView struct {
	ItemID    int64  `json:"itemId"`
	Quantity  int64  `json:"quantity"`
	Available *int64 `json:"available"`
}

// Time is an instant as answers give it: UTC with milliseconds.
type Time struct{ time.Time }

const timeLayout = "2006-01-02T15:04:05.000Z"

// MarshalText implements encoding.TextMarshaler.
func (t Time) MarshalText() ([]byte, error) { return t.UTC().AppendFormat(nil, timeLayout), nil }

// MarshalJSON hides that of time.Time.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.UTC().AppendFormat(nil, `"`+timeLayout+`"`), nil
}

func viewSale(s sale.Sale) SaleView {
	v := SaleView{
		ID: s.ID, Name: s.Name, StartsAt: Time{s.StartsAt}, EndsAt: Time{s.EndsAt}, Paused: s.Paused,
		PurchaseLimit: string(s.PurchaseLimit), PaymentWindow: formatDuration(s.PaymentWindow), TimeZone: s.TimeZone,
		Items: make([]SaleItemView, 0, len(s.Items)),
	}
	for _, it := range s.Items {
		v.Items = append(v.Items, SaleItemView{
			ID: it.ID, ProductID: it.ProductID, SKU: it.SKU, Quantity: it.Quantity, Sold: it.Sold, Price: string(it.Price), Currency: it.Currency,
			Shards: it.Shards, MaxPerUser: it.MaxPerUser, StockModel: string(it.Model), Paused: it.Paused, Retired: !it.RetiredAt.IsZero(),
		})
	}
	return v
}

// formatDuration writes 10m where time.Duration writes 10m0s.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// nextCursor is the cursor of the next page, or nil where there is none.
func nextCursor(cursor string) *string { return nonEmpty(cursor) }

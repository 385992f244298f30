package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"flashgate/internal/config"
	"flashgate/internal/sale"
)

// payCommand plays the payment provider: it signs one event of the webhook and sends it.
type payCommand struct {
	Order    sale.OrderID `arg:"" help:"Order"`
	Amount   string       `name:"amount" required:"" placeholder:"DECIMAL" help:"Amount for the whole order"`
	Currency string       `name:"currency" required:"" placeholder:"CODE" help:"Currency of the order"`
	Failed   bool         `name:"failed" help:"Say that the attempt failed, instead of that it succeeded"`
	EventID  string       `name:"event-id" placeholder:"ID" help:"Id of the event; the same one tells the same event again. Default a new one"`
	config.PublicClient
	config.PaymentSigner
}

// Run implements the command.
func (c *payCommand) Run(ctx context.Context, std *console) error {
	event := struct {
		EventID  string       `json:"eventId"`
		OrderID  sale.OrderID `json:"orderId"`
		Status   string       `json:"status"`
		Amount   string       `json:"amount"`
		Currency string       `json:"currency"`
	}{c.EventID, c.Order, "SUCCEEDED", c.Amount, c.Currency}
	if c.Failed {
		event.Status = "FAILED"
	}
	if event.EventID == "" {
		event.EventID = uuid.NewString()
	}
	body, err := json.Marshal(event)
	if err != nil {
		return fmt.Errorf("pay order %s: %w", c.Order, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.URL, "/")+"/api/flash-sales/payments", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("pay order %s: %w", c.Order, err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Flashgate-Signature", signPayment(c.PaymentSecret.Reveal(), time.Now(), body))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("pay order %s: %w", c.Order, err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("pay order %s: %w", c.Order, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("pay order %s: the gateway answers %d %s", c.Order, response.StatusCode, shown(string(answer)))
	}
	_, err = std.out.Write(append(bytes.TrimRight(answer, "\n"), '\n'))
	return err
}

// signPayment makes the header by which the webhook knows the provider.
func signPayment(secret string, now time.Time, body []byte) string {
	t := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(t + "."))
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

package alerts

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/mail"
	"net/smtp"
	"strings"
	"time"

	"github.com/kagzi/kagzi/internal/text"
)

// A Mail sends alerts by SMTP. It uses TLS from the beginning with port 465, and else if the server offers it.
type Mail struct {
	Addr string    // host and port of the server, such as "smtp.example.com:587"
	Auth smtp.Auth // zero means none
	From string    // an address, such as "Kagzi <kagzi@example.com>"
	To   []string  // addresses
}

func (m Mail) validate() error {
	if _, _, err := net.SplitHostPort(m.Addr); err != nil {
		return fmt.Errorf("Mail has the Addr %q: give host and port, such as smtp.example.com:587", m.Addr)
	}
	if len(m.To) == 0 {
		return errors.New("Mail has no address in To")
	}
	_, _, err := m.addresses()
	return err
}

func (m Mail) addresses() (from *mail.Address, to []*mail.Address, err error) {
	var all []*mail.Address
	for _, s := range append([]string{m.From}, m.To...) {
		a, err := mail.ParseAddress(s)
		if err != nil {
			return nil, nil, fmt.Errorf("Mail has the address %q: %w", s, err)
		}
		all = append(all, a)
	}
	return all[0], all[1:], nil
}

// Notify sends the alert. A message that is sent twice has the same Message-ID, by which mailboxes drop the second one.
func (m Mail) Notify(ctx context.Context, a Alert) error {
	from, to, err := m.addresses()
	if err != nil {
		return err
	}
	c, err := m.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Mail(from.Address); err != nil {
		return err
	}
	for _, to := range to {
		if err := c.Rcpt(to.Address); err != nil {
			return err
		}
	}
	data, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := data.Write(textOfMail(a, from, to)); err != nil {
		return err
	}
	if err := data.Close(); err != nil {
		return err
	}
	_ = c.Quit() // the server has the message
	return nil
}

// connect returns a session with the server, which ends with ctx.
func (m Mail) connect(ctx context.Context) (*smtp.Client, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", m.Addr)
	if err != nil {
		return nil, err
	}
	if t, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(t) // fails only if conn is closed, and then what follows fails, too
	}
	host, port, _ := net.SplitHostPort(m.Addr)
	if port == "465" {
		conn = tls.Client(conn, &tls.Config{ServerName: host})
	}
	c, err := smtp.NewClient(conn, host)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if ok, _ := c.Extension("STARTTLS"); ok {
		err = c.StartTLS(&tls.Config{ServerName: host})
	}
	if err == nil && m.Auth != nil {
		err = c.Auth(m.Auth)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// textOfMail returns the message with its headers.
func textOfMail(a Alert, from *mail.Address, to []*mail.Address) []byte {
	_, domain, _ := strings.Cut(from.Address, "@")
	var names []string
	for _, t := range to {
		names = append(names, t.String())
	}
	id := sha256.Sum256([]byte(a.Key))
	var b strings.Builder
	for _, h := range [][2]string{
		{"From", from.String()},
		{"To", strings.Join(names, ", ")},
		{"Subject", mime.QEncoding.Encode("utf-8", text.OneLine(a.Namespace+": "+a.Title))},
		{"Date", a.At.Format(time.RFC1123Z)},
		{"Message-ID", "<" + hex.EncodeToString(id[:16]) + "@" + domain + ">"},
		{"MIME-Version", "1.0"},
		{"Content-Type", "text/plain; charset=utf-8"},
		{"Content-Transfer-Encoding", "base64"},
	} {
		b.WriteString(h[0] + ": " + h[1] + "\r\n")
	}
	b.WriteString("\r\n")
	body := base64.StdEncoding.EncodeToString([]byte(a.describe() + "\n"))
	for len(body) > 76 {
		b.WriteString(body[:76] + "\r\n")
		body = body[76:]
	}
	b.WriteString(body + "\r\n")
	return []byte(b.String())
}

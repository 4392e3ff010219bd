package localpg

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// scramSecret returns the form of a password that Postgres stores, after RFC 5803. It hashes once instead of 4096
// times, which serve to slow down guessing: rand.Text cannot be guessed, and under the race detector they take most of
// the time that a connection needs to open.
func scramSecret(password string) string {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	salted := mac([]byte(password), append(salt, 0, 0, 0, 1))
	stored := sha256.Sum256(mac(salted, []byte("Client Key")))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$1:%s$%s:%s", encode(salt), encode(stored[:]),
		encode(mac(salted, []byte("Server Key"))))
}

func mac(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)
}

package localpg

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// scramSecret returns what Postgres keeps of a password, of RFC 5803, hashed once instead of the 4096 times that slow
// down whoever guesses: nobody guesses rand.Text, and under the race detector the 4096 times take most of a
// connection's time.
func scramSecret(password string) string {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	salted := mac([]byte(password), append(salt, 0, 0, 0, 1))
	stored := sha256.Sum256(mac(salted, []byte("Client Key")))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$1:%s$%s:%s", encode(salt), encode(stored[:]), encode(mac(salted, []byte("Server Key"))))
}

func mac(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)
}

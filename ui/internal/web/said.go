package web

import (
	"encoding/base64"
	"net/http"
	"strings"
)

const saidCookie = "kagzi-said"

// say lets the next page say what a change has done. A cookie keeps it, so that it stands in no address.
func say(w http.ResponseWriter, path, text string) {
	if text == "" {
		return
	}
	if len(text) > 1000 {
		text = strings.ToValidUTF8(text[:1000], "") + "…"
	}
	http.SetCookie(w, &http.Cookie{
		Name: saidCookie, Value: base64.RawURLEncoding.EncodeToString([]byte(text)), Path: path, MaxAge: 60,
		HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}

// said returns what the last change has done, once.
func said(w http.ResponseWriter, r *http.Request, path string) string {
	c, err := r.Cookie(saidCookie)
	if err != nil {
		return ""
	}
	http.SetCookie(w, &http.Cookie{
		Name: saidCookie, Path: path, MaxAge: -1, HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	})
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return ""
	}
	return string(text)
}

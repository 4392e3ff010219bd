package web

import (
	"errors"
	"testing"
)

func TestSentencesBeginWithACapital(t *testing.T) {
	for text, want := range map[string]string{"é bom": "É bom", "x": "X", "1": "1", "": "unknown error", "日本": "日本"} {
		if got := Sentence(errors.New(text)); got != want {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

package docs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A protocol is told in the package comment of a file doc.go, or of a file doc_leases.go if its package has several.
// Comments refer to the latter by their names alone, wherever they are.
var (
	protocolFile = regexp.MustCompile(`^doc(_\w+)?\.go$`)
	toProtocol   = regexp.MustCompile(`(?:[\w.-]+/)*\bdoc_\w+\.go\b`)
	camelCase    = regexp.MustCompile(`^[a-z]{2,}[A-Z]\w*$`)
)

// citesInComment returns an error if the word is a path, a test or a name that the code does not have.
func (s *sources) citesInComment(word string) error {
	switch {
	case toProtocol.MatchString(word):
		return s.refers(word)
	case citedMember.MatchString(word), camelCase.MatchString(word): // Store.Claim, claimLoop
		if !s.declared[word] {
			return fmt.Errorf("there is no %s", word)
		}
		return nil
	}
	_, err := s.cites(word)
	return err
}

// refers returns an error unless the reference leads to a file with a protocol: by its path, or by its name alone.
func (s *sources) refers(reference string) error {
	if strings.Contains(reference, "/") {
		_, err := os.Stat(filepath.Join("..", filepath.FromSlash(reference)))
		return err
	}
	if n := len(s.protocols[reference]); n != 1 {
		return fmt.Errorf("%d files are called %s", n, reference)
	}
	return nil
}

// comment returns the words of a package's comment.
func comment(text string) []string {
	head, _, _ := strings.Cut("\n"+text, "\npackage ")
	return strings.FieldsFunc(strings.ReplaceAll(head, "//", " "), func(r rune) bool {
		return strings.ContainsRune(" \t\n,;:()[]\"'", r)
	})
}

func TestProtocolsCiteWhatThereIs(t *testing.T) {
	t.Parallel()
	s, err := readSources()
	if err != nil {
		t.Fatal(err)
	}
	listed := read(t, "architecture.md")
	for _, path := range slices.Concat(slices.Collect(maps.Values(s.protocols))...) {
		isListed := strings.Contains(listed, "]("+filepath.ToSlash(path)+")")
		if !isListed && filepath.Base(path) == "doc.go" {
			continue // a comment without a protocol
		} else if !isListed {
			t.Errorf("architecture.md does not list %s", path)
		}
		for _, word := range comment(read(t, path)) {
			if err := s.citesInComment(strings.TrimRight(word, ".")); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	for _, wrong := range []string{
		"TestOfNothing", "store.Flushed", "Store.Flushed", "claimNothing",
		"internal/engine/inboxes.go", "doc_nothing.go", "store/doc_nothing.go",
	} {
		if s.citesInComment(wrong) == nil {
			t.Errorf("%s is accepted, so the test proves nothing", wrong)
		}
	}
}

func TestCommentsReferToProtocols(t *testing.T) {
	t.Parallel()
	s, err := readSources()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for path, text := range s.text {
		if strings.HasPrefix(path, filepath.Join("..", "docs")+string(filepath.Separator)) {
			continue
		}
		for _, reference := range toProtocol.FindAllString(text, -1) {
			seen++
			if err := s.refers(reference); err != nil {
				t.Errorf("%s refers to %s: %v", path, reference, err)
			}
		}
	}
	if seen == 0 {
		t.Error("no comment refers to a protocol")
	}
}

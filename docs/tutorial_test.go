package docs

import (
	"path/filepath"
	"strings"
	"testing"
)

// The tutorial shows pieces of programs, which the tests of cmd/kagzi play (TestTutorial). So its Go blocks need no
// prelude to compile: each of their paragraphs is in the program of its part, up to the indentation.
const tutorial = "tutorial.md"

func TestTutorialShowsItsPrograms(t *testing.T) {
	t.Parallel()
	flat := func(code string) string {
		lines := strings.Split(strings.TrimSpace(code), "\n")
		for i, line := range lines {
			lines[i] = strings.TrimSpace(line)
		}
		return "\n" + strings.Join(lines, "\n") + "\n"
	}
	seen := 0
	for _, part := range strings.Split(read(t, tutorial), "\n## ")[1:] {
		number := part[:1]
		if number == "6" {
			number = "5" // part 6 is the test of part 5
		}
		files, err := filepath.Glob("../examples/tutorial/part" + number + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		program := ""
		for _, file := range files {
			program += flat(read(t, file))
		}
		for _, block := range goBlock.FindAllStringSubmatch(part, -1) {
			for paragraph := range strings.SplitSeq(block[2], "\n\n") {
				seen++
				if !strings.Contains(program, flat(paragraph)) {
					t.Errorf("part %s shows code that examples/tutorial/part%s has not:\n%s", part[:1], number,
						paragraph)
				}
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d paragraphs of code were found", seen)
	}
}

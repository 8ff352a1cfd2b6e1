package repository

import (
	"strings"
	"testing"
)

// A lab's CI checks with the release that rendered; what is between two releases cannot be named, and takes the last one.
func TestWorkflowNamesTheRelease(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0": "berth@v0.1.0\n", "v0.1.0-3-gd9daea8": "berth@latest\n", "development": "berth@latest\n",
	} {
		if text := workflow(version); !strings.Contains(text, want) {
			t.Errorf("%s: the workflow does not install %s:\n%s", version, want, text)
		}
	}
}

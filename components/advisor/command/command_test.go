package command

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"advisor": func() { os.Exit(Run(context.Background(), os.Stdout, os.Stderr, os.Args[1:])) },
	})
}

// The scripts in testdata show every command with its input and output.
func TestScripts(t *testing.T) {
	shared, err := filepath.Abs("../../../../shared")
	if err != nil {
		t.Fatal(err)
	}
	clusters, err := filepath.Abs("../../../clusters")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("SHARED", shared)
			e.Setenv("CLUSTERS", clusters)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			_, err := os.Stat(filepath.Join(shared, "traces"))
			return cond == "shared" && err == nil, nil
		},
	})
}

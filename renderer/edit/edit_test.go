package edit

import (
	"testing"

	"cuelang.org/go/cue/parser"
)

func TestAppendLeavesTheRest(t *testing.T) {
	for name, test := range map[string]struct{ before, after string }{
		"a list in one line": {
			"lab: users: a: {uid: 1, keys: [\"k\"]} // first\n",
			"lab: users: a: {uid: 1, keys: [\"k\", \"n1\", \"n2\"]} // first\n",
		},
		"an empty list": {"lab: users: a: keys: [ ]\n", "lab: users: a: keys: [ \"n1\", \"n2\"]\n"},
		"a list in lines, with comments": {
			"lab: site & {\n\tusers: a: {\n\t\tkeys: [\n\t\t\t\"k\", // laptop\n\t\t\t// none more\n\t\t]\n\t}\n}\n",
			"lab: site & {\n\tusers: a: {\n\t\tkeys: [\n\t\t\t\"k\", // laptop\n\t\t\t// none more\n\t\t\t\"n1\",\n\t\t\t\"n2\",\n\t\t]\n\t}\n}\n",
		},
		"a user in one line": {
			"lab: site & {\n\tusers: {\n\t\ta: {uid: 1, account: \"x\"} // new\n\t\tb: {uid: 2}\n\t}\n}\n",
			"lab: site & {\n\tusers: {\n\t\ta: {uid: 1, account: \"x\", keys: [\"n1\", \"n2\"]} // new\n\t\tb: {uid: 2}\n\t}\n}\n",
		},
		"a user in lines": {
			"lab: users: a: {\n\tuid: 1\n}\n",
			"lab: users: a: {\n\tuid: 1\n\tkeys: [\"n1\", \"n2\"],\n}\n",
		},
		"a user by a chain of labels": {
			"lab: users: a: uid: 1",
			"lab: users: a: uid: 1\nlab: users: a: keys: [\"n1\", \"n2\"]\n",
		},
		"a user that another file or an expression makes": {
			"lab: users: {for i in [1] {\"a\": uid: i}}\n",
			"lab: users: {for i in [1] {\"a\": uid: i}}\nlab: users: a: keys: [\"n1\", \"n2\"]\n",
		},
		"a list that is no literal stays": {
			"lab: users: a: keys: [\"k\"] | [\"l\"]\n",
			"lab: users: a: keys: [\"k\"] | [\"l\"]\nlab: users: a: keys: [\"n1\", \"n2\"]\n",
		},
		"the later of two places": {
			"lab: users: a: {uid: 1}\nlab: users: \"a\": {keys: [\"k\"]}\n",
			"lab: users: a: {uid: 1}\nlab: users: \"a\": {keys: [\"k\", \"n1\", \"n2\"]}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Append("lab.cue", []byte(test.before), []string{"lab", "users", "a", "keys"}, []string{"n1", "n2"})
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != test.after {
				t.Errorf("got\n%s\nwant\n%s", got, test.after)
			}
			if _, err := parser.ParseFile("lab.cue", got, parser.ParseComments); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := Append("lab.cue", []byte("lab: {"), []string{"lab", "keys"}, []string{"n"}); err == nil {
		t.Error("a file that is no CUE is edited")
	}
}

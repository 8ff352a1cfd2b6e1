package diff

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/site"
)

// Edit is one change of a site's value.
type Edit struct {
	// Path of the field, without the site's name.
	Path string `json:"path"`
	From any    `json:"from,omitempty"` // absent: there was none
	To   any    `json:"to,omitempty"`   // absent: there is none any more
	Text string `json:"text"`           // for people: "pool gpu: max 2 → 4"
}

// nouns are what the members of a site's maps are called.
var nouns = map[string]string{
	"hosts": "host", "pools": "pool", "accounts": "account", "users": "user", "groups": "group", "reservations": "reservation",
	"slurm.partitions": "partition", "slurm.qos": "QOS",
}

// derived follow from other fields, whose edits are told.
var derived = []string{"model", "speed", "gpuMemory"}

func edits(from, to *site.Site) ([]Edit, error) {
	before, err := tree(from)
	if err != nil {
		return nil, err
	}
	after, err := tree(to)
	if err != nil {
		return nil, err
	}
	if from == nil || to == nil {
		return nil, nil
	}
	var found []Edit
	walk(nil, before, after, &found)
	return renames(found), nil
}

// tree is the site as plain maps and lists.
func tree(s *site.Site) (map[string]any, error) {
	if s == nil {
		return nil, nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(text, &out)
}

func walk(path []string, before, after any, found *[]Edit) {
	a, aMap := before.(map[string]any)
	b, bMap := after.(map[string]any)
	if noun, name := member(path); noun != "" && len(path) == len(strings.Split(nounKey(path), "."))+1 && aMap != bMap {
		verb, value := "added", after
		if aMap {
			verb, value = "removed", before
		}
		*found = append(*found, Edit{Path: load.PathText(path), From: before, To: after, Text: fmt.Sprintf("%s %s %s%s", noun, name, verb, summary(noun, value))})
		return
	}
	if aMap || bMap {
		if len(path) > 0 && aMap != bMap && before != nil && after != nil {
			*found = append(*found, edit(path, before, after))
			return
		}
		keys := slices.Sorted(maps.Keys(a))
		for key := range b {
			if _, both := a[key]; !both {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		for _, key := range keys {
			inner := append(path[:len(path):len(path)], key)
			if skipped(inner) {
				continue
			}
			walk(inner, a[key], b[key], found)
		}
		return
	}
	if !reflect.DeepEqual(before, after) {
		*found = append(*found, edit(path, before, after))
	}
}

func skipped(path []string) bool {
	return len(path) == 3 && path[0] == "pools" && slices.Contains(derived, path[2]) || load.PathText(path) == "advisor.topology"
}

// nounKey is the map that a path lies in, if its members have a name of their own.
func nounKey(path []string) string {
	for n := 1; n < len(path); n++ {
		if _, ok := nouns[strings.Join(path[:n], ".")]; ok {
			return strings.Join(path[:n], ".")
		}
	}
	return ""
}

func member(path []string) (noun, name string) {
	key := nounKey(path)
	if key == "" {
		return "", ""
	}
	return nouns[key], path[len(strings.Split(key, "."))]
}

func edit(path []string, before, after any) Edit {
	e := Edit{Path: load.PathText(path), From: before, To: after}
	change := fmt.Sprintf("%s → %s", show(before), show(after))
	switch {
	case before == nil:
		change = show(after) + " (new)"
	case after == nil:
		change = "unset (was " + show(before) + ")"
	}
	if noun, name := member(path); noun != "" {
		rest := path[len(strings.Split(nounKey(path), "."))+1:]
		e.Text = fmt.Sprintf("%s %s: %s %s", noun, name, load.PathText(rest), change)
	} else {
		e.Text = fmt.Sprintf("%s: %s", e.Path, change)
	}
	return e
}

func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case string:
		if v == "" {
			return `""`
		}
		return v
	case []any:
		var parts []string
		for _, item := range v {
			parts = append(parts, show(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		text, _ := json.Marshal(v)
		return string(text)
	}
	text, _ := json.Marshal(v)
	return string(text)
}

// summary says the most important of a member that comes or goes.
func summary(noun string, value any) string {
	v, _ := value.(map[string]any)
	get := func(key string) string { return show(v[key]) }
	switch noun {
	case "pool":
		text := fmt.Sprintf(" (max %s, %s CPUs, %s", get("max"), get("cpus"), get("memory"))
		if g, ok := v["gpus"].(float64); ok && g > 0 {
			text += fmt.Sprintf(", %v cards", g)
		}
		return text + ")"
	case "user":
		return fmt.Sprintf(" (uid %s, account %s)", get("uid"), get("account"))
	case "host":
		return fmt.Sprintf(" (%s, %s CPUs, %s)", get("address"), get("cpus"), get("memory"))
	case "partition":
		return fmt.Sprintf(" over pools %s", get("pools"))
	}
	return ""
}

// renames recognises a pool that is removed and added under another name; the rest of its edits follow from that.
func renames(found []Edit) []Edit {
	var out []Edit
	gone := map[int]bool{}
	for i, r := range found {
		if !isPool(r) || r.To != nil {
			continue
		}
		for j, a := range found {
			if isPool(a) && a.From == nil && !gone[j] && reflect.DeepEqual(r.From, a.To) {
				gone[i], gone[j] = true, true
				old, fresh := strings.TrimPrefix(r.Path, "pools."), strings.TrimPrefix(a.Path, "pools.")
				out = append(out, Edit{Path: r.Path, From: old, To: fresh, Text: fmt.Sprintf("pool %s renamed to %s: for Slurm the one is removed and the other is new", old, fresh)})
				break
			}
		}
	}
	for i, e := range found {
		if !gone[i] {
			out = append(out, e)
		}
	}
	return out
}

func isPool(e Edit) bool {
	return strings.HasPrefix(e.Path, "pools.") && len(load.Steps(e.Path)) == 2
}

//go:build ignore

// Command generate cuts Kubernetes' own description of its API down to the kinds that a site or its charts may hold, as JSON
// Schema: fields that a kind does not have are refused.
//
//	go run generate.go "$(go mod download -json k8s.io/kubernetes@v1.34.4 | jq -r .Dir)/api/openapi-spec/swagger.json" schemas/kubernetes-1.34.json
package main

import (
	"encoding/json"
	"log"
	"maps"
	"os"
	"slices"
	"strings"
)

// groups are the API groups whose objects are checked; the name is that of their Go package.
var groups = []string{
	"io.k8s.api.core.v1.", "io.k8s.api.apps.v1.", "io.k8s.api.batch.v1.", "io.k8s.api.networking.v1.", "io.k8s.api.rbac.v1.",
	"io.k8s.api.policy.v1.", "io.k8s.api.scheduling.v1.", "io.k8s.api.node.v1.", "io.k8s.api.storage.v1.", "io.k8s.api.autoscaling.v2.",
	"io.k8s.api.admissionregistration.v1.", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.",
	"io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.",
}

type object = map[string]any

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var api struct{ Definitions map[string]object }
	if err := json.Unmarshal(text, &api); err != nil {
		log.Fatal(err)
	}
	kinds, defs := object{}, object{}
	var reach func(name string)
	reach = func(name string) {
		if _, done := defs[name]; done {
			return
		}
		defs[name] = object{}
		defs[name] = schema(name, api.Definitions[name], reach)
	}
	for _, name := range slices.Sorted(maps.Keys(api.Definitions)) {
		of := api.Definitions[name]["x-kubernetes-group-version-kind"]
		list, _ := of.([]any)
		if len(list) != 1 || strings.HasSuffix(name, "List") || !slices.ContainsFunc(groups, func(g string) bool { return strings.HasPrefix(name, g) }) {
			continue
		}
		kind := list[0].(object)
		version := kind["version"].(string)
		if group := kind["group"].(string); group != "" {
			version = group + "/" + version
		}
		kinds[version+" "+kind["kind"].(string)] = name
		reach(name)
	}
	out, err := json.Marshal(object{"kinds": kinds, "$defs": defs})
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(os.Args[2], append(out, '\n'), 0o644); err != nil {
		log.Fatal(err)
	}
}

// schema turns one definition into JSON Schema.
func schema(name string, of object, reach func(string)) object {
	switch {
	case strings.HasSuffix(name, ".Quantity"):
		return object{"type": []string{"string", "number"}}
	case strings.HasSuffix(name, ".IntOrString"):
		return object{"type": []string{"string", "integer"}}
	case of["properties"] == nil && (strings.Contains(name, ".JSON") || strings.HasSuffix(name, ".FieldsV1") || strings.HasSuffix(name, ".RawExtension") || strings.HasSuffix(name, "SubresourceStatus")):
		return object{}
	}
	return part(of, reach)
}

func part(of object, reach func(string)) object {
	out := object{}
	if ref, ok := of["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/definitions/")
		reach(name)
		return object{"$ref": "#/$defs/" + name}
	}
	for _, key := range []string{"type", "required", "enum"} {
		if value, ok := of[key]; ok {
			out[key] = value
		}
	}
	if properties, ok := of["properties"].(object); ok {
		inner := object{}
		for name, p := range properties {
			inner[name] = part(p.(object), reach)
		}
		out["properties"], out["additionalProperties"] = inner, false
	}
	if items, ok := of["items"].(object); ok {
		out["items"] = part(items, reach)
	}
	if more, ok := of["additionalProperties"].(object); ok {
		out["additionalProperties"] = part(more, reach)
	}
	return out
}

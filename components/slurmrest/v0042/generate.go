package v0042

// openapi.json is what `slurmrestd -d v0.0.42 -s slurmctld --generate-openapi-spec` of Slurm 24.11.5 prints, cut down to
// the operations that Berth uses and the schemas they need, with the prefixes "v0.0.42_" and "openapi_" taken off names.

//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.0 -config oapi-codegen.yaml openapi.json

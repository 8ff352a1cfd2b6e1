package load

import "fmt"

// Values reads the named sites, or all, as plain values, complete with their defaults.
func Values(dir string, names ...string) (map[string]any, error) {
	return bounded(dir, func() (map[string]any, error) {
		v, problems, err := inspect(dir, names)
		if err != nil {
			return nil, err
		}
		if len(problems) > 0 {
			return nil, problems
		}
		out := make(map[string]any)
		for _, s := range v.sites {
			var value map[string]any
			if err := s.value.Decode(&value); err != nil {
				return nil, fmt.Errorf("%s: site %s: %w", dir, s.name, err)
			}
			out[s.name] = value
		}
		return out, nil
	})
}

package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Names of the two forms of Slurm's key in its Secret. Daemons read the set where it is there, and the single key, which sites
// made before the set have alone, where it is not.
const (
	singleKeyFile = "slurm.key"
	keySetFile    = "slurm.jwks"
)

// keySet is slurm.jwks as auth/slurm reads it: every key in it is good for a message, the default one signs. Ours are in order:
// keys that signed before, the one that signs, and the one that signs after the next rotation. A daemon thus knows a key long
// before it meets a message signed with it, so a rotation may reach the daemons in any order.
type keySet struct {
	Keys []slurmKey `json:"keys"`
}

// slurmKey is one key. Slurm takes no other algorithm and key type than these, and names must differ within a set.
type slurmKey struct {
	Algorithm string `json:"alg"`
	Type      string `json:"kty"`
	ID        string `json:"kid"`
	Key       string `json:"k"`
	Use       string `json:"use,omitempty"`
}

const signs = "default"

// firstID names the key of a site that had a single one: its messages carry no name, and are taken for the default key's.
const firstID = "first"

// idTime is how a key's name begins: when it was made, in UTC.
const idTime = "20060102T150405Z"

func (k slurmKey) bytes() ([]byte, error) { return base64.RawURLEncoding.DecodeString(k.Key) }

func encodeKey(id string, key []byte) slurmKey {
	return slurmKey{Algorithm: "HS256", Type: "oct", ID: id, Key: base64.RawURLEncoding.EncodeToString(key)}
}

func newSlurmKey(now time.Time) (slurmKey, error) {
	key, err := randomBytes(slurmKeyBytes)
	if err != nil {
		return slurmKey{}, err
	}
	tail, err := randomBytes(4)
	if err != nil {
		return slurmKey{}, err
	}
	return encodeKey(now.UTC().Format(idTime)+"-"+hex.EncodeToString(tail), key), nil
}

// newKeySet is the set of a new site: one key that signs, one for the first rotation.
func newKeySet(now time.Time) (keySet, error) {
	var set keySet
	for range 2 {
		key, err := newSlurmKey(now)
		if err != nil {
			return keySet{}, err
		}
		set.Keys = append(set.Keys, key)
	}
	set.Keys[0].Use = signs
	return set, nil
}

// readKeySet reads the set of a Secret's data; one that has a single key gives a set of that alone.
func readKeySet(data map[string][]byte) (keySet, error) {
	text, ok := data[keySetFile]
	if !ok {
		key := data[singleKeyFile]
		if len(key) == 0 {
			return keySet{}, fmt.Errorf("has neither %s nor %s", keySetFile, singleKeyFile)
		}
		first := encodeKey(firstID, key)
		first.Use = signs
		return keySet{Keys: []slurmKey{first}}, nil
	}
	var set keySet
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // an exp that somebody wrote must not be lost in silence
	if err := decoder.Decode(&set); err != nil {
		// The text is a secret: an error of the decoder may quote it.
		return keySet{}, fmt.Errorf("%s is no key set of berth's (keys with alg, kty, kid, k and use)", keySetFile)
	}
	if set.signer() < 0 {
		return keySet{}, fmt.Errorf("%s names no key with \"use\": %q", keySetFile, signs)
	}
	return set, nil
}

// signer is the index of the key that signs; -1: there is none.
func (s keySet) signer() int {
	return slices.IndexFunc(s.Keys, func(k slurmKey) bool { return k.Use == signs })
}

// data are the two forms for the Secret.
func (s keySet) data() (map[string][]byte, error) {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, err
	}
	single, err := s.Keys[s.signer()].bytes()
	if err != nil {
		return nil, fmt.Errorf("%s: the key that signs is not base64", keySetFile)
	}
	return map[string][]byte{keySetFile: append(text, '\n'), singleKeyFile: single}, nil
}

// settled is how long every daemon surely needs to know a key: Flux's interval, the kubelets' copies and the guard's reconfigure.
const settled = 30 * time.Minute

// errTooSoon is why a key cannot sign yet.
var errTooSoon = errors.New("not every daemon may know the next key yet")

// rotate makes the next key the one that signs and adds one for the rotation after it. Where there is no next key yet it only
// adds one, and published is true.
func (s keySet) rotate(now time.Time) (next keySet, published bool, err error) {
	next = keySet{Keys: slices.Clone(s.Keys)}
	signer := next.signer()
	if signer+1 < len(next.Keys) {
		if made, err := time.Parse(idTime, next.Keys[signer+1].ID[:min(len(idTime), len(next.Keys[signer+1].ID))]); err == nil && now.Before(made.Add(settled)) {
			return keySet{}, false, fmt.Errorf("%w: it was made at %s, and a daemon refuses messages signed with a key that it has not read. Push what is committed, and rotate after %s",
				errTooSoon, made.Format(time.RFC3339), made.Add(settled).Format(time.RFC3339))
		}
		next.Keys[signer].Use = ""
		next.Keys[signer+1].Use = signs
	} else {
		published = true
	}
	if signer = next.signer(); signer+1 == len(next.Keys) {
		key, err := newSlurmKey(now)
		if err != nil {
			return keySet{}, false, err
		}
		next.Keys = append(next.Keys, key)
	}
	return next, published, nil
}

// finish drops the keys that signed before.
func (s keySet) finish() keySet { return keySet{Keys: slices.Clone(s.Keys[s.signer():])} }

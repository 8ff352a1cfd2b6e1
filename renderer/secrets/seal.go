package secrets

import (
	"errors"
	"fmt"
	"time"

	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	"github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/keyservice"
	sopsyaml "github.com/getsops/sops/v3/stores/yaml"
	"github.com/getsops/sops/v3/version"
)

// EncryptedFields is the expression for .sops.yaml and for every file sealed here: the values of a Secret, nothing else.
const EncryptedFields = "^(data|stringData)$"

// Seal encrypts the values of one Secret manifest for the age recipients, in the form that sops and Flux's
// kustomize-controller read.
func Seal(manifest []byte, recipients []string) ([]byte, error) {
	var group sops.KeyGroup
	for _, recipient := range recipients {
		key, err := age.MasterKeyFromRecipient(recipient)
		if err != nil {
			return nil, fmt.Errorf("recipient %q is not an age public key (age1…): %w", recipient, err)
		}
		group = append(group, key)
	}
	if len(group) == 0 {
		return nil, errors.New("no recipient: without one nobody could read the secret again")
	}
	store := sopsyaml.NewStore(&config.YAMLStoreConfig{Indent: 2})
	branches, err := store.LoadPlainFile(manifest)
	if err != nil {
		return nil, err
	}
	tree := sops.Tree{Branches: branches, Metadata: sops.Metadata{
		KeyGroups: []sops.KeyGroup{group}, EncryptedRegex: EncryptedFields, Version: version.Version,
	}}
	dataKey, failures := tree.GenerateDataKeyWithKeyServices([]keyservice.KeyServiceClient{keyservice.NewLocalClient()})
	if len(failures) > 0 {
		return nil, fmt.Errorf("encrypt the data key: %w", errors.Join(failures...))
	}
	cipher := aes.NewCipher()
	mac, err := tree.Encrypt(dataKey, cipher)
	if err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	// The time is part of what the code authenticates, in whole seconds as sops reads it back.
	tree.Metadata.LastModified = time.Now().UTC().Truncate(time.Second)
	tree.Metadata.MessageAuthenticationCode, err = cipher.Encrypt(mac, dataKey, tree.Metadata.LastModified.Format(time.RFC3339))
	if err != nil {
		return nil, fmt.Errorf("encrypt the authentication code: %w", err)
	}
	return store.EmitEncryptedFile(tree)
}

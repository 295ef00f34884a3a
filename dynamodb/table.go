package dynamodb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/cursor"
)

// openTable makes sure that the table is there and is one of ours, and finds the store's id.
func (b *handle) openTable(ctx context.Context) error {
	table, err := b.describeTable(ctx)
	if hasCode(err, "ResourceNotFoundException") && !b.opts.NoCreate {
		if err = b.createTable(ctx); err == nil {
			table, err = b.describeTable(ctx)
		}
	}
	if hasCode(err, "ResourceNotFoundException") {
		return fmt.Errorf("table %s does not exist in region %s, and it is not to be created: %w", b.table, b.db.Options().Region, err)
	}
	if err != nil {
		return fmt.Errorf("open table %s in region %s: %w", b.table, b.db.Options().Region, err)
	}
	for table.TableStatus == types.TableStatusCreating {
		if !sleep(ctx, 200*time.Millisecond) {
			return inconsistent(ctx, fmt.Errorf("table %s is still being created", b.table))
		}
		if table, err = b.describeTable(ctx); err != nil {
			return fmt.Errorf("open table %s: %w", b.table, err)
		}
	}
	if err := checkKeys(table); err != nil {
		return fmt.Errorf("table %s cannot hold a store: %w", b.table, err)
	}
	if err := checkStream(table.StreamSpecification); err != nil {
		return fmt.Errorf("table %s cannot hold a store: %w", b.table, err)
	}
	if !b.opts.NoCreate {
		if err := b.finishTable(ctx); err != nil {
			return fmt.Errorf("set up table %s: %w", b.table, err)
		}
	}
	if err := b.openStore(ctx); err != nil {
		return fmt.Errorf("open the store in table %s: %w", b.table, err)
	}
	return nil
}

func (b *handle) describeTable(ctx context.Context) (*types.TableDescription, error) {
	var table *types.TableDescription
	_, err := b.call(ctx, func(option func(*dynamodb.Options)) error {
		out, err := b.db.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &b.table}, option)
		if err == nil {
			table = out.Table
		}
		return err
	})
	return table, err
}

// checkKeys compares an existing table's keys with what is needed.
func checkKeys(table *types.TableDescription) error {
	kinds := map[string]types.ScalarAttributeType{}
	for _, a := range table.AttributeDefinitions {
		kinds[aws.ToString(a.AttributeName)] = a.AttributeType
	}
	found := ""
	for _, k := range table.KeySchema {
		name := aws.ToString(k.AttributeName)
		found += fmt.Sprintf(" %s (%s, %s)", name, k.KeyType, kinds[name])
	}
	if want := fmt.Sprintf(" %s (HASH, B) %s (RANGE, B)", attrPK, attrSK); found != want {
		return fmt.Errorf("its keys are%s, expected%s", found, want)
	}
	return nil
}

func checkStream(s *types.StreamSpecification) error {
	switch {
	case s == nil || !aws.ToBool(s.StreamEnabled):
		return errors.New("its stream is off, expected a stream with NEW_AND_OLD_IMAGES")
	case s.StreamViewType != types.StreamViewTypeNewAndOldImages:
		return fmt.Errorf("its stream shows %s, expected NEW_AND_OLD_IMAGES", s.StreamViewType)
	}
	return nil
}

// createTable creates the table and waits until it can be used. Another process may do the same at the same time.
func (b *handle) createTable(ctx context.Context) error {
	in := &dynamodb.CreateTableInput{
		TableName:   &b.table,
		BillingMode: types.BillingModePayPerRequest,
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(attrPK), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(attrSK), KeyType: types.KeyTypeRange},
		},
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(attrPK), AttributeType: types.ScalarAttributeTypeB},
			{AttributeName: aws.String(attrSK), AttributeType: types.ScalarAttributeTypeB},
		},
		StreamSpecification: &types.StreamSpecification{
			StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages,
		},
	}
	for name, value := range b.opts.Tags {
		in.Tags = append(in.Tags, types.Tag{Key: &name, Value: &value})
	}
	_, err := b.call(ctx, func(option func(*dynamodb.Options)) error {
		_, err := b.db.CreateTable(ctx, in, option)
		return err
	})
	if hasCode(err, "ResourceInUseException") {
		return nil // somebody else was faster, and does the rest
	}
	if err != nil {
		return err
	}
	for {
		table, err := b.describeTable(ctx)
		if err != nil && !hasCode(err, "ResourceNotFoundException") {
			return err
		}
		if err == nil && table.TableStatus == types.TableStatusActive {
			return nil
		}
		if !sleep(ctx, 200*time.Millisecond) {
			return inconsistent(ctx, errors.New("the table is still being created"))
		}
	}
}

// finishTable switches on what cannot be part of creating a table. Whoever created it may have died before, so each opening looks.
// The time-to-live comes last: where it is on, all is done. A program that is not allowed to look, or to change it, does without.
func (b *handle) finishTable(ctx context.Context) error {
	var status types.TimeToLiveStatus
	_, err := b.call(ctx, func(option func(*dynamodb.Options)) error {
		out, err := b.db.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &b.table}, option)
		if err == nil && out.TimeToLiveDescription != nil {
			status = out.TimeToLiveDescription.TimeToLiveStatus
		}
		return err
	})
	if hasCode(err, "AccessDeniedException") || err == nil && status != types.TimeToLiveStatusDisabled {
		return nil
	}
	if err != nil {
		return err
	}
	if b.opts.PointInTimeRecovery {
		_, err = b.call(ctx, func(option func(*dynamodb.Options)) error {
			_, err := b.db.UpdateContinuousBackups(ctx, &dynamodb.UpdateContinuousBackupsInput{
				TableName:                        &b.table,
				PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(true)},
			}, option)
			return err
		})
		if err != nil {
			return err
		}
	}
	_, err = b.call(ctx, func(option func(*dynamodb.Options)) error {
		_, err := b.db.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
			TableName:               &b.table,
			TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(attrExpires), Enabled: aws.Bool(true)},
		}, option)
		return err
	})
	if hasCode(err, "AccessDeniedException", "ValidationException") {
		return nil // the latter: another process was faster
	}
	return err
}

// openStore reads the item that says which store this is, or makes it.
func (b *handle) openStore(ctx context.Context) error {
	for {
		it, err := b.getItem(ctx, true, b.store())
		if err != nil {
			return err
		}
		if it != nil {
			return b.checkStore(it)
		}
		if b.opts.NoCreate {
			return fmt.Errorf("there is no store with prefix %q, and it is not to be created", b.prefix)
		}
		var id cursor.StoreID
		_, _ = rand.Read(id[:]) // never fails
		it = b.store()
		it[attrStoreID] = binaryValue(id[:])
		it[attrSchema] = binaryValue([]byte{schemaVersion})
		_, err = b.call(ctx, func(option func(*dynamodb.Options)) error {
			_, err := b.db.PutItem(ctx, &dynamodb.PutItemInput{
				TableName: &b.table, Item: it, ConditionExpression: aws.String("attribute_not_exists(pk)"),
			}, option)
			return err
		})
		if err != nil && !hasCode(err, "ConditionalCheckFailedException") {
			return err
		}
	}
}

func (b *handle) checkStore(it item) error {
	id, schema := it.bytes(attrStoreID), it.bytes(attrSchema)
	switch {
	case len(id) != len(b.id) || len(schema) != 1:
		return errors.New("the item that describes the store is malformed")
	case schema[0] > schemaVersion:
		return fmt.Errorf("%w: its schema is %d, this program knows %d", storage.ErrNewerSchema, schema[0], schemaVersion)
	}
	copy(b.id[:], id)
	return nil
}

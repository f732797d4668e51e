"""The JSON documents of folders as types: what each key holds, its unit, and what it reveals when it is published."""

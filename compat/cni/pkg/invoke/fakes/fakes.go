package fakes
